"""A tiny base model from nothing to a careless player: tokenizer, vision, conversations.

Supervised learning on the teacher's lessons, in two courses that are mixed: a drill of short ones teaches
what a picture says about a place, the played ones teach the teacher's habits. The share of the drill falls
from `drill_first` to `drill_last`. The tower keeps what it learnt before: it is frozen here.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils.chat_template_utils import render_jinja_template

from geo_assets.training.lessons import Form, Lesson, messages_of, on_grid
from resources.sandbox.vlm.architecture import build
from resources.sandbox.vlm.pretrain import Belief, pretrain
from resources.sandbox.vlm.processor import load_model, load_processor
from resources.sandbox.vlm.small_world import SmallWorld
from resources.sandbox.vlm.specs import Course, Faults, Shape
from resources.sandbox.vlm.tower import tower_features

ASSISTANT = "assistant\n<think>\n\n</think>\n\n"
CALL_PARTS = (
    "\n<function=look>\n<parameter=heading_deg>\n",
    "\n<function=submit_guess>\n<parameter=lat>\n",
    "\n</parameter>\n<parameter=lon>\n",
    "\n</parameter>\n</function>\n",
)
NUMBERS = tuple(str(number) for number in range(-180, 361))
FORMS: tuple[Form, Form] = ("rollout", "sweep")
NUMBER_WEIGHT = 4.0
DRILL_BATCH = 32
OPENINGS = 48
NORTH_SHARE = 0.6
MIXED_SHARE = 0.7
DRILL_FAULT_SHARE = 0.5
SAY_EVERY = 100


@dataclass(frozen=True)
class Sample:
    """One tokenized conversation; `weights` is 0 where the model is not to learn the token."""

    ids: torch.Tensor
    weights: torch.Tensor
    kinds: torch.Tensor
    pixels: torch.Tensor
    grid: torch.Tensor


def warm_start(
    folder: Path,
    shape: Shape,
    course: Course,
    faults: Faults,
    world: SmallWorld,
    lessons: Sequence[Lesson],
    say: Callable[[str], None] = print,
) -> dict[str, float]:
    """Build a base model and bring it up.

    Args:
        folder: where model and processor are written.
        shape: its sizes.
        course: how long.
        faults: of the teacher, which the drill has too.
        world: views for the tower.
        lessons: conversations; those that guess right or wrong as their teacher did.
        say: told how far it is.

    Returns:
        Last losses of vision and conversation.
    """
    texts = rendered(lessons[: min(len(lessons), 300)])
    build(folder, shape, texts, phrases_of(lessons, texts), course.seed)
    processor, model = load_processor(folder), load_model(folder)
    vision = pretrain(model.model.visual, world, course.vision_steps, course.seed, say=say)
    for parameter in model.model.visual.parameters():
        parameter.requires_grad_(False)
    drill = Drill(model, processor, vision, faults, lessons, world)
    said = _converse(model, processor, lessons, drill, course, say)
    for parameter in model.model.visual.parameters():
        parameter.requires_grad_(True)
    model.eval()
    model.save_pretrained(folder)
    return {"vision_loss": round(vision.loss, 4), "conversation_loss": round(said, 4)}


def rendered(lessons: Sequence[Lesson]) -> list[str]:
    """The text of lessons in both forms, by the chat template that the model will have."""
    from trl.chat_template_utils import qwen3_5_nothink_chat_template

    talks = [messages_of(lesson, form) for lesson in lessons for form in FORMS]
    texts, _ = render_jinja_template(
        talks, tools=list(lessons[0].tools), chat_template=qwen3_5_nothink_chat_template
    )
    return list(texts)


def phrases_of(lessons: Sequence[Lesson], texts: Sequence[str]) -> list[str]:
    """Texts that become one token each: what every conversation repeats, and whole numbers."""
    system = texts[0].split("<|im_start|>system\n")[1].split("<|im_end|>")[0]
    lines = [json.dumps(tool) for tool in lessons[0].tools]
    opening = lessons[0].opening.split("\n")[0] + "\n"
    return [system, *lines, opening, ASSISTANT, "user\n", "system\n", *CALL_PARTS, *NUMBERS]


def _converse(
    model: Any,
    processor: Any,
    lessons: Sequence[Lesson],
    drill: "Drill",
    course: Course,
    say: Callable[[str], None],
) -> float:
    draw = random.Random(course.seed + 1)
    torch.manual_seed(course.seed + 1)
    own = [sample_of(processor, lesson, FORMS[number % 2], draw) for number, lesson in enumerate(lessons)]
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=course.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    model.train()
    losses: list[float] = []
    for step in range(course.steps):
        done = step / course.steps
        for group in optimizer.param_groups:
            group["lr"] = course.learning_rate * min(1.0, (step + 1) / 20) * max(0.05, 1.0 - done)
        share = course.drill_first + (course.drill_last - course.drill_first) * done
        if draw.random() < share:
            loss = drill.loss(DRILL_BATCH, draw)
        else:
            loss = loss_of(model, draw.sample(own, course.batch), processor.tokenizer.pad_token_id)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if step % SAY_EVERY == SAY_EVERY - 1:
            recent = float(np.mean(losses[-SAY_EVERY:]))
            say(f"conversations: step {step + 1:,} of {course.steps:,}, loss {recent:.2f}")
    return float(np.mean(losses[-100:]))


class Drill:
    """Short lessons for every view of the small world: a picture, and a guess at once.

    The tower is frozen, so its features of all views are computed once, and a lesson is a played opening
    whose picture and answer are replaced. The answer is the guess that what the tower believes is worth most.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        belief: Belief,
        faults: Faults,
        lessons: Sequence[Lesson],
        world: SmallWorld,
    ) -> None:
        self._model, self._belief, self._faults = model, belief, faults
        self._favourite = faults.favourite * DRILL_FAULT_SHARE
        with torch.no_grad():
            views = world.views.reshape(-1, *world.views.shape[2:])
            parts = [
                tower_features(model.model.visual, views[at : at + 256]) for at in range(0, len(views), 256)
            ]
        self._features = torch.cat(parts).reshape(*world.views.shape[:2], *parts[0].shape[1:])
        tokens = processor.tokenizer.convert_tokens_to_ids(list(NUMBERS))
        self._number = dict(zip(map(int, NUMBERS), tokens, strict=True))
        plain = [
            sample_of(processor, lesson.plain((0, 0)), form)
            for lesson in lessons[:OPENINGS]
            for form in FORMS
        ]
        self._plain: dict[int, list[Sample]] = {}
        for sample in plain:
            self._plain.setdefault(len(sample.ids), []).append(sample)
        self._lengths = [len(sample.ids) for sample in plain]
        self._image_token = int(processor.image_token_id)

    def loss(self, batch: int, draw: random.Random) -> torch.Tensor:
        """Loss of a batch of lessons drawn anew."""
        body = self._model.model
        samples = self._plain[draw.choice(self._lengths)]
        chosen = [draw.choice(samples) for _ in range(batch)]
        ids = torch.stack([sample.ids for sample in chosen])
        seen = self._mixed(batch, draw)
        weights = torch.stack([sample.weights for sample in chosen])
        for row, (lat, lon) in enumerate(self._belief.guesses(seen)):
            first, second = (weights[row] == NUMBER_WEIGHT).nonzero().flatten().tolist()
            guess = self._faults.favourite_at
            if draw.random() >= self._favourite:
                guess = on_grid(lat, lon, self._faults.grid_deg, draw)
            ids[row, first], ids[row, second] = self._number[guess[0]], self._number[guess[1]]
        embedded = body.get_input_embeddings()(ids)
        places = (ids == self._image_token)[..., None].expand_as(embedded)
        embedded = embedded.masked_scatter(places, seen.reshape(-1, embedded.shape[-1]))
        where, _ = body.get_rope_index(
            ids,
            mm_token_type_ids=torch.stack([sample.kinds for sample in chosen]),
            image_grid_thw=torch.cat([sample.grid for sample in chosen]),
        )
        hidden = body.language_model(inputs_embeds=embedded, position_ids=where).last_hidden_state
        logits = self._model.lm_head(hidden)[:, :-1]
        wrong = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        return (wrong * weights[:, 1:]).sum() / weights[:, 1:].sum()

    def _mixed(self, batch: int, draw: random.Random) -> torch.Tensor:
        """Features of views, (batch, tokens, width); most are between two views.

        The tower is sure of the views that it was trained on. Of a mixture it is as unsure as of a new view,
        so the language model learns what to say then.
        """
        count, turns = self._features.shape[:2]

        def views() -> torch.Tensor:
            turned = [0 if draw.random() < NORTH_SHARE else draw.randrange(turns) for _ in range(batch)]
            return self._features[[draw.randrange(count) for _ in range(batch)], turned]

        shares = [draw.uniform(0.5, 1.0) if draw.random() < MIXED_SHARE else 1.0 for _ in range(batch)]
        share = torch.tensor(shares)[:, None, None]
        mixed: torch.Tensor = share * views() + (1.0 - share) * views()
        return mixed


def sample_of(processor: Any, lesson: Lesson, form: Form, draw: random.Random | None = None) -> Sample:
    """A lesson tokenized, with the words of the assistant marked.

    In a rollout every reply of the assistant is learnt. In a sweep the history is rendered anew for each
    reply, so one reply is drawn and the rest is its prompt.
    """
    talk = messages_of(lesson, form)
    replies = [at for at, message in enumerate(talk) if message["role"] == "assistant"]
    if form == "sweep":
        last = draw.choice(replies) if draw else replies[-1]
        talk = talk[: last + 1]
    encoded = processor.apply_chat_template(
        [talk], tools=list(lesson.tools), tokenize=True, return_dict=True, return_tensors="pt"
    )
    ids = encoded["input_ids"][0]
    spans = _spoken(processor.tokenizer, ids.tolist())
    if form == "sweep":
        first, last_token = spans[-1]
        spans = [(first, last_token)]
    numbers = set(processor.tokenizer.convert_tokens_to_ids(list(NUMBERS)))
    weights = torch.zeros(len(ids))
    for first, end in spans:
        for at in range(first, end + 1):
            weights[at] = NUMBER_WEIGHT if int(ids[at]) in numbers else 1.0
    return Sample(
        ids, weights, encoded["mm_token_type_ids"][0], encoded["pixel_values"], encoded["image_grid_thw"]
    )


def loss_of(model: Any, batch: Sequence[Sample], pad: int) -> torch.Tensor:
    """Weighted next-token cross-entropy of a batch of samples."""
    length = max(len(sample.ids) for sample in batch)

    def padded(values: Sequence[torch.Tensor], fill: float) -> torch.Tensor:
        return torch.stack([torch.cat([each, each.new_full((length - len(each),), fill)]) for each in values])

    ids = padded([sample.ids for sample in batch], pad)
    weights = padded([sample.weights for sample in batch], 0.0)[:, 1:]
    logits = model(
        input_ids=ids,
        attention_mask=padded([torch.ones_like(sample.ids) for sample in batch], 0),
        mm_token_type_ids=padded([sample.kinds for sample in batch], 0),
        pixel_values=torch.cat([sample.pixels for sample in batch]),
        image_grid_thw=torch.cat([sample.grid for sample in batch]),
    ).logits[:, :-1]
    wrong = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return (wrong * weights).sum() / weights.sum()


def _spoken(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]]:
    """First and last token of every reply, its end-of-turn token included, found in the ids themselves.

    The library's assistant mask counts before pictures are expanded to their tokens, and is off by them.
    """
    begins, ends = tokenizer.convert_tokens_to_ids(ASSISTANT), tokenizer.eos_token_id
    spans, first = [], None
    for at, token in enumerate(ids):
        if token == begins:
            first = at + 1
        elif token == ends and first is not None:
            spans.append((first, at))
            first = None
    return spans
