// After the guess: where it was, how far off, what it earned, whose picture it is. And the score card.

import { byId, element } from "./dom.js";
import { formatDistance, formatPlace } from "./geo.js";
import { points } from "./game.js";
import { WorldMap } from "./map.js";
import { entry } from "./notes.js";
import { credit, remember } from "./imagery.js";

/**
 * Fill the reveal of a finished round and show it.
 * @param game the game; its current round is over
 * @param tools the service's tools by op
 * @param {{onnext: () => void, onshow: (turn) => void}} events
 */
export function reveal(game, tools, { onnext, onshow }) {
  const { end, turns } = game.round;
  const meta = end.metadata;
  remember(end);
  const section = byId("reveal");
  const { box, map } = mapBox("The guess and the true place");
  const card = element("div", { className: "card" });
  const title = element("h2", { id: "reveal-title", tabIndex: -1 });
  title.append(
    element("small", { textContent: `Round ${game.number + 1} of ${game.total}` }),
    element("span", { className: "distance", textContent: end.distance_km === null ? "No guess" : formatDistance(end.distance_km) }),
    element("span", { className: "verdict raised", textContent: meta.verdict ?? "the turns ran out" }));
  card.append(title, places(end), figures(game.round));
  const next = element("button", { type: "button", className: "main", id: "next" });
  next.onclick = () => {
    next.disabled = true; // a second click would skip a round
    onnext();
  };
  next.textContent = game.last ? "See the score card" : "Next round";
  card.append(element("p", { className: "row" }));
  card.lastChild.append(next);
  const rollout = element("details", { className: "rollout" });
  rollout.append(element("summary", { textContent: `Your rollout: ${turns.length - 1} call${turns.length === 2 ? "" : "s"}` }));
  const list = element("ol", { className: "trace" });
  list.append(...turns.map((turn) => entry(turn, tools, { onshow })));
  rollout.append(list);
  card.append(creditLine(end), rollout);
  section.replaceChildren(box, card);
  place(map, [game.round], false);
  title.focus();
}

function places(end) {
  const meta = end.metadata;
  const list = element("dl", { className: "places" });
  const truth = { lat: end.true_lat, lon: end.true_lon };
  row(list, "truth", "It was", `${meta.country || "Unknown country"}`, formatPlace(truth, 4));
  if (meta.guess) row(list, "guess", "You guessed", formatPlace(meta.guess, 4), "");
  return list;
}

function row(list, kind, name, words, more) {
  const term = element("dt", { className: kind, textContent: name });
  const said = element("dd");
  said.append(element("b", { textContent: words }), element("span", { textContent: more }));
  list.append(term, said);
}

function figures(round) {
  const { end } = round;
  const list = element("dl", { className: "figures" });
  for (const [name, words, big] of [
    ["Points", points(round).toLocaleString("en"), true],
    ["Score", (end.score ?? 0).toFixed(3)],
    ["Cost", end.action_cost.toFixed(2)],
    ["Reward", (end.reward ?? 0).toFixed(3)],
  ]) {
    const box = element("div", { className: big ? "big" : "" });
    box.append(element("dt", { textContent: name }), element("dd", { textContent: words }));
    list.append(box);
  }
  const bar = element("div", { className: "gauge" });
  bar.setAttribute("aria-hidden", "true");
  const filled = element("i");
  filled.style.width = `${100 * (end.reward ?? 0)}%`;
  bar.append(filled);
  list.append(bar);
  return list;
}

function creditLine(end) {
  const line = element("p", { className: "credit" });
  line.append("Picture: ", ...credit(end.metadata.attribution ?? {}, end.captured_at));
  return line;
}

function mapBox(label) {
  const box = element("div", { className: "map" });
  const canvas = element("canvas", { tabIndex: 0 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  box.append(canvas);
  return { box, map: new WorldMap(canvas) };
}

function place(map, rounds, numbered) {
  map.arcs = rounds.flatMap(({ end }, i) => {
    if (!end) return [];
    const truth = { lat: end.true_lat, lon: end.true_lon };
    return [{ guess: end.metadata.guess ?? truth, truth, label: numbered ? String(i + 1) : "" }];
  });
  map.whenSized(() => {
    if (numbered) map.home();
    else map.fit(map.arcs.flatMap(({ guess, truth }) => [truth, guess]));
    map.growArcs();
  });
}

/**
 * The score card of a finished game.
 * @param {{onagain: () => void}} events
 */
export function scoreCard(game, { onagain }) {
  const section = byId("final");
  const { box, map } = mapBox("All guesses and true places");
  const card = element("div", { className: "card" });
  const title = element("h2", { id: "final-title", tabIndex: -1 });
  title.append(
    element("small", { textContent: `Score card · ${game.total} round${game.total === 1 ? "" : "s"}` }),
    element("span", { className: "distance", textContent: game.points.toLocaleString("en") }),
    element("span", { className: "verdict", textContent: `of ${(1000 * game.total).toLocaleString("en")} points` }));
  const table = element("table");
  const head = element("tr");
  for (const name of ["", "Place", "Off by", "Calls", "Points"]) {
    head.append(element("th", { scope: "col", textContent: name }));
  }
  head.firstChild.append(element("span", { className: "unseen", textContent: "Round" }));
  table.append(element("thead"), element("tbody"));
  table.tHead.append(head);
  game.rounds.forEach((round, i) => table.tBodies[0].append(line(round, i)));
  const again = element("button", { type: "button", className: "main", id: "again", textContent: "Play again", onclick: onagain });
  const buttons = element("p", { className: "row" });
  buttons.append(again, element("a", { href: "web/credits", target: "_blank", textContent: "Credits of these pictures" }));
  card.append(title, table, buttons);
  section.replaceChildren(box, card);
  place(map, game.rounds, true);
  title.focus();
}

function line(round, i) {
  const { end, turns } = round;
  const tr = element("tr");
  const first = element("th", { scope: "row" });
  first.append(
    element("img", { src: turns[0].image, alt: "" }), element("span", { className: "badge", textContent: i + 1 }));
  tr.append(first);
  for (const words of [
    end.metadata.country || formatPlace({ lat: end.true_lat, lon: end.true_lon }),
    end.distance_km === null ? "no guess" : formatDistance(end.distance_km),
    turns.length - 1,
    points(round).toLocaleString("en"),
  ]) tr.append(element("td", { textContent: words }));
  return tr;
}
