// What went wrong, in plain words, and what to do next.

const KNOWN = {
  CAPACITY_REACHED: ["All seats are taken", "Every session of this server is in use. Seats become free when others finish.", "Try again"],
  SESSION_EXPIRED: ["The session has ended", "It was unused for too long, so the server gave the seat away. The round cannot be resumed.", "Continue with another place"],
  SHUTTING_DOWN: ["The server is stopping", "It is being shut down or started anew. The round cannot be resumed.", "Try to connect again"],
  STEP_TIMEOUT: ["The call took too long", "The server gave it up and ended the session. The round cannot be resumed.", "Continue with another place"],
  UNREACHABLE: ["No environment there", "", "Try again"],
  LOST: ["The connection broke", "The session went with it, and the round cannot be resumed. Rounds that are finished still count.", "Connect and continue"],
  MISSING_FRAME: ["A picture is missing", "The server's store lacks a picture of this place.", "Continue with another place"],
  BAD_SELECTION: ["There is no such task", "The address of this page names a split or a task that the server does not hold.", "Deal tasks at random"],
  STRANGE_ANSWER: ["The server cannot deal a game", "Its answer is not what this page expects. If it was started anew or updated, load this page again.", "Try again"],
};

const DETAILED = new Set(["MISSING_FRAME", "BAD_SELECTION", "STRANGE_ANSWER"]);

/** However it was started, it must come back at the address of this page. */
function unreachable() {
  const port = location.port ? ` and --port ${location.port}` : "";
  return `The server at ${location.host} does not answer. If it has stopped, start it again with the command that started it${port}.`;
}

/** Title, words and the label of the next step for an error of the session. */
export function explain(error) {
  const known = KNOWN[error.code];
  if (!known) return ["Something went wrong", `${sentence(error.message)} The round cannot be resumed.`, "Continue with another place"];
  const [title, words, next] = known;
  const detail = DETAILED.has(error.code) ? ` ${sentence(error.message)}` : "";
  return [title, (words || unreachable()) + detail, next];
}

/** The same words as a sentence. */
export const sentence = (words) => words.charAt(0).toUpperCase() + words.slice(1).replace(/[.\s]*$/, ".");
