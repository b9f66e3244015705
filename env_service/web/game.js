// Five rounds on top of five episodes: which tasks, what happened in each, and the sum.

const ROUNDS = 5;

/** What the service says of itself: tools with their costs, by op. Nothing about prices is kept here. */
export async function readTools() {
  const { tools } = await ask("schema");
  return new Map(tools.map((tool) => [tool.op, tool]));
}

/**
 * Deal the tasks of a game: those named in the page's address (`?split=eval&tasks=3,1,4`), or five at random.
 * @returns {Promise<Game>}
 */
export async function deal(address) {
  const query = new URL(address).searchParams;
  const splits = await ask("geoguesser_env/splits");
  const split = query.get("split") ?? splits[0].name;
  const { num_tasks: count } = await ask("geoguesser_env/num_tasks", { split });
  const named = (query.get("tasks") ?? "").split(",").filter((word) => /^\d+$/.test(word)).map(Number);
  return new Game(split, count, named.slice(0, ROUNDS));
}

async function ask(path, body = null) {
  const url = new URL(`../${path}`, import.meta.url);
  const sent = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  const answer = await fetch(url, sent || {});
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
  return answer.json();
}

export class Game {
  constructor(split, count, named) {
    this.split = split;
    this.count = count;
    this.used = new Set(named);
    this.tasks = [...named];
    if (!named.length) while (this.tasks.length < Math.min(ROUNDS, count)) this.tasks.push(this.#fresh());
    this.rounds = [];
  }

  get total() {
    return this.tasks.length;
  }

  /** The round being played, from 0. */
  get number() {
    return this.rounds.length - 1;
  }

  get round() {
    return this.rounds[this.number];
  }

  get last() {
    return this.rounds.length === this.total;
  }

  get points() {
    return this.rounds.reduce((sum, round) => sum + points(round), 0);
  }

  /** Open the next round. */
  begin() {
    this.rounds.push({ index: this.tasks[this.rounds.length], turns: [], end: null });
    return this.round;
  }

  /**
   * Take the unfinished round back, if there is one. A place that was seen, or cannot be shown, is replaced by
   * another while there are any.
   */
  redeal(unplayable) {
    if (!this.round || this.round.end) return;
    const seen = this.rounds.pop().turns.length > 0;
    if ((seen || unplayable) && this.used.size < this.count) this.tasks[this.rounds.length] = this.#fresh();
  }

  /** Write down a call and what came back. */
  note(action, { observation, reward, done }) {
    const { turns } = this.round;
    const before = turns.at(-1)?.observation.action_cost ?? 0;
    const turn = {
      number: turns.length,
      action,
      observation,
      cost: Math.round((observation.action_cost - before) * 1e6) / 1e6,
      image: picture(observation),
    };
    turns.push(turn);
    if (done) this.round.end = { ...observation, reward };
    return turn;
  }

  #fresh() {
    let index;
    do index = crypto.getRandomValues(new Uint32Array(1))[0] % this.count;
    while (this.used.has(index));
    this.used.add(index);
    return index;
  }
}

/** Points of a round: its reward in thousandths. */
export const points = (round) => Math.round(1000 * (round.end?.reward ?? 0));

/** The address of an observation's picture: exactly the bytes that came, or null. */
export function picture(observation) {
  if (!observation.image_base64) return null;
  const type = observation.image_kind === "map" ? "png" : "jpeg";
  return `data:image/${type};base64,${observation.image_base64}`;
}
