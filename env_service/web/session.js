// One session with the environment over /ws: one frame out, one frame in, like any other client.

const ANSWER_LIMIT_MS = 45_000;

/** The server refused something. `code` is the server's; the session may live on. */
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** The session is gone, and with it the episode. `code` is the server's, or one of ours: UNREACHABLE, LOST. */
export class Lost extends Refused {}

// After these the server closes the session, or never opened it.
const FINAL = new Set(["CAPACITY_REACHED", "SESSION_EXPIRED", "STEP_TIMEOUT", "SHUTTING_DOWN"]);

export class Session {
  /**
   * @param {string} url address of /ws
   * @param {(lost: Lost) => void} onlost called once, when the session ends other than by `close`
   */
  constructor(url, onlost) {
    this.url = url;
    this.onlost = onlost;
    this.pending = null;
    this.lost = null;
    this.tail = Promise.resolve();
  }

  /** Connect. Rejects with Lost where there is nobody to talk to. */
  open() {
    return new Promise((resolve, reject) => {
      this.socket = new WebSocket(this.url);
      this.socket.onopen = () => resolve();
      this.socket.onmessage = (event) => this.#receive(event.data);
      this.socket.onclose = () => {
        const never = new Lost("UNREACHABLE", "the server does not answer");
        reject(never);
        this.#lose(this.lost ?? (this.opened ? new Lost("LOST", "the connection broke") : never));
      };
    }).then(() => {
      this.opened = true;
    });
  }

  /** Send a message and wait for its answer. Rejects with Refused or Lost. Calls are made one at a time. */
  request(type, data = {}) {
    const answer = this.tail.then(() => this.#exchange(type, data));
    this.tail = answer.catch(() => {});
    return answer;
  }

  /** End the session; nobody is told. */
  close() {
    this.onlost = () => {};
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send('{"type":"close"}');
    this.socket?.close();
  }

  #exchange(type, data) {
    if (this.lost) return Promise.reject(this.lost);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this.#lose(new Lost("LOST", "the server did not answer in time")), ANSWER_LIMIT_MS);
      this.pending = {
        resolve: (value) => (clearTimeout(timer), resolve(value)),
        reject: (error) => (clearTimeout(timer), reject(error)),
      };
      this.socket.send(JSON.stringify({ type, data }));
    });
  }

  #receive(text) {
    const { type, data } = JSON.parse(text);
    const waiting = this.pending;
    if (type !== "error") {
      this.pending = null;
      waiting?.resolve(data);
      return;
    }
    if (FINAL.has(data.code)) {
      this.#lose(new Lost(data.code, data.message));
      return;
    }
    this.pending = null;
    waiting?.reject(new Refused(data.code, data.message));
  }

  #lose(lost) {
    const first = this.lost === null;
    this.lost ??= lost;
    const waiting = this.pending;
    this.pending = null;
    waiting?.reject(this.lost);
    if (first) this.onlost(this.lost);
    this.socket.close();
  }
}
