// Five rounds on top of five episodes: which tasks, what happened in each, and the sum.

const ROUNDS = 5;

// A reset that ends like this says nothing against its place: seats, the server, the address, the connection.
const NOT_THE_PLACE = new Set([
  "CAPACITY_REACHED", "SHUTTING_DOWN", "BAD_SELECTION", "SESSION_EXPIRED", "UNREACHABLE", "LOST"]);

/** The game cannot be dealt; `code` is a key of trouble.js. */
class Undealt extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

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
  const held = splits.map(({ name }) => name);
  const split = query.get("split") || held[0];
  if (!held.includes(split)) {
    throw new Undealt("BAD_SELECTION", `It names the split "${split}"; the server holds ${held.join(", ") || "none"}.`);
  }
  const { num_tasks: count } = await ask("geoguesser_env/num_tasks", { split });
  const words = (query.get("tasks") ?? "").split(",").map((word) => word.trim()).filter(Boolean);
  const strange = words.find((word) => !/^\d+$/.test(word) || Number(word) >= count);
  if (strange !== undefined) {
    throw new Undealt("BAD_SELECTION", `It names the task "${strange}"; those of the split ${split} are 0 to ${count - 1}.`);
  }
  return new Game(split, count, words.map(Number).slice(0, ROUNDS));
}

async function ask(path, body = null) {
  const url = new URL(`../${path}`, import.meta.url);
  const sent = body && { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  let answer;
  try {
    answer = await fetch(url, sent || {});
  } catch {
    throw new Undealt("UNREACHABLE", "the server does not answer");
  }
  if (!answer.ok) throw new Undealt("STRANGE_ANSWER", `It was status ${answer.status} for ${url.pathname}.`);
  return answer.json().catch(() => {
    throw new Undealt("STRANGE_ANSWER", `It was no JSON for ${url.pathname}.`);
  });
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
    this.rounds.push({ index: this.tasks[this.rounds.length], turns: [], end: null, unplayable: false });
    return this.round;
  }

  /** The open round could not be dealt: write down whether its place can be played at all. */
  refused(code) {
    this.round.unplayable = !NOT_THE_PLACE.has(code);
  }

  /**
   * Take the unfinished round back, if there is one. A place that was seen, or cannot be shown, is replaced by
   * another while there are any; after that, the game does without a place that cannot be shown.
   */
  redeal() {
    if (!this.round || this.round.end) return;
    const { turns, unplayable } = this.rounds.pop();
    if (!turns.length && !unplayable) return;
    if (this.used.size < this.count) this.tasks[this.rounds.length] = this.#fresh();
    else if (unplayable) this.tasks.splice(this.rounds.length, 1);
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
