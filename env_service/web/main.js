// The page as a whole: one session, one game, and which screen is shown.

import { byId } from "./dom.js";
import { Camera } from "./camera.js";
import { deal, readTools } from "./game.js";
import { compassPoint, wholeHeading } from "./geo.js";
import { WorldMap } from "./map.js";
import { entry } from "./notes.js";
import { PlaceForm } from "./place.js";
import { reveal, scoreCard } from "./reveal.js";
import { Lost, Session } from "./session.js";
import { explain, sentence } from "./trouble.js";
import { meters, rounds } from "./meters.js";

const KEEP_MS = 60_000; // a person may think: while one does, the session is kept from expiring
const PRESENT_MS = 15 * 60_000;

let session = null;
let game = null;
let tools = new Map();
let last = null; // the latest observation
let busy = false;
let inputAt = performance.now();

const camera = new Camera(
  {
    view: byId("view"), frame: byId("frame"), picture: byId("picture"), compass: byId("compass"),
    aim: byId("aim"), words: byId("aim-words"),
  },
  { onlook: look, onwalk: walk });
const map = new WorldMap(byId("map"), { onpick: (place) => form.choose(place), onmove: () => form?.moved() });
const form = new PlaceForm(map, call);
new WorldMap(byId("backdrop"), {}, true);

// ---- play

async function begin() {
  if (busy) return;
  game = null;
  setBusy(true);
  try {
    [tools, game] = await Promise.all([readTools(), deal(location.href)]);
  } catch (error) {
    return trouble(error);
  }
  return connect();
}

/** Open a session and go on with the game where it stands. */
async function connect() {
  const address = new URL("../ws", import.meta.url);
  address.protocol = address.protocol.replace("http", "ws");
  session?.close();
  session = new Session(address.href, trouble);
  try {
    await session.open();
  } catch {
    return undefined; // told by `trouble`
  }
  return nextRound();
}

async function nextRound() {
  setBusy(true);
  const round = game.begin();
  const reset = { split: game.split, index: round.index };
  try {
    const answer = await session.request("reset", reset);
    byId("trace").replaceChildren();
    form.clear();
    map.home();
    screen("play");
    tab("street");
    take({ op: "reset" }, answer);
    byId("view").focus({ preventScroll: true });
  } catch (error) {
    game.refused(error.code);
    if (!(error instanceof Lost)) trouble(error);
  } finally {
    setBusy(false);
  }
}

/** Make one call. Resolves to whether a tool answered it. */
async function call(action) {
  if (busy || !session || last?.done) return false;
  setBusy(true);
  try {
    take(action, await session.request("step", action));
    return true;
  } catch (error) {
    camera.cancel();
    if (!(error instanceof Lost)) say(`${sentence(error.message)} Nothing was spent.`, action.op);
    return false;
  } finally {
    setBusy(false);
  }
}

function look({ heading, pitch, fov, turned }) {
  if (turned) call({ op: "look", heading_deg: heading, pitch_deg: pitch, fov_deg: fov });
  else call({ op: "zoom", fov_deg: fov });
}

function walk(direction) {
  if (busy || !last?.available_tools.includes("move")) return;
  const free = direction === "forward" ? last.can_move_forward : last.can_move_backward;
  if (free) call({ op: "move", direction, meters: Number(byId("meters-walked").value) });
  else say(`No captured position lies ${direction}. Nothing was spent.`);
}

/** Show what came back. */
function take(action, result) {
  const turn = game.note(action, result);
  last = { ...result.observation, done: result.done };
  const { observation } = result;
  camera.show(observation, observation.image_kind === "view" ? turn.image : null);
  form.take(action, turn);
  byId("facts").textContent = facts(observation);
  byId("trace").prepend(entry(turn, tools, { onshow: enlarge, onuse: use }));
  const warning = lastTurn(observation);
  say([observation.feedback, warning].filter(Boolean).join(" "));
  form.say(action.op, observation.feedback);
  byId("last-turn").textContent = warning;
  byId("last-turn").hidden = !warning;
  if (result.done) finish();
}

function facts(observation) {
  const camera = `${compassPoint(observation.heading_deg)} ${wholeHeading(observation.heading_deg)}° · ${Math.round(observation.fov_deg)}° wide`;
  const month = observation.captured_at ? `taken ${observation.captured_at}` : "";
  const walked = observation.total_moved_meters ? `walked ${observation.total_moved_meters} m` : "";
  return [camera, month, walked].filter(Boolean).join(" · ");
}

function lastTurn({ steps_remaining: left, available_tools: can }) {
  return left === 1 && can.length > 1 ? "One turn is left: guess now, any other call ends the round without a guess." : "";
}

function finish() {
  screen("reveal");
  reveal(game, tools, {
    onshow: enlarge,
    onnext: () => (game.last ? end() : nextRound()),
  });
  refresh();
}

function end() {
  session?.close();
  session = null;
  screen("final");
  scoreCard(game, { onagain: begin });
  refresh();
}

// ---- what is shown

function setBusy(value) {
  busy = value;
  document.body.setAttribute("aria-busy", String(value));
  refresh();
}

function refresh() {
  byId("begin").disabled = busy;
  rounds(byId("rounds"), game, document.body.dataset.screen);
  if (!last || !game) return;
  meters(last, game);
  const able = (name) => !last.done && last.available_tools.includes(name);
  const can = { look: able("look"), zoom: able("zoom") };
  camera.allow(can, busy);
  for (const button of document.querySelectorAll("[data-turn]")) button.hidden = !can.look;
  for (const button of document.querySelectorAll("[data-zoom]")) button.hidden = !can.zoom;
  byId("walk").hidden = !able("move");
  for (const button of document.querySelectorAll("[data-walk]")) {
    const free = button.dataset.walk === "forward" ? last.can_move_forward : last.can_move_backward;
    button.setAttribute("aria-disabled", String(!free || busy));
  }
  byId("aim-cost").textContent = ` ${tools.get("look")?.cost.toFixed(2) ?? ""}`;
  form.allow(able, tools, busy);
}

function say(words, op = "") {
  byId("feedback").textContent = words;
  form.say(op, words);
}

function screen(name) {
  document.body.dataset.screen = name;
  scrollTo(0, 0);
}

function tab(name) {
  document.body.dataset.tab = name;
  for (const button of byId("tabs").children) button.setAttribute("aria-pressed", String(button.dataset.tab === name));
}

function use(place) {
  tab("map");
  form.choose(place);
  map.fit([place], Math.min(map.spanDeg, 20));
}

function enlarge({ image, number, observation }) {
  const box = byId("lightbox");
  box.firstElementChild.src = image;
  box.firstElementChild.alt = `${observation.image_kind === "map" ? "Map" : "View"} of turn ${number}`;
  box.showModal();
}

function trouble(error) {
  if (game?.last && game.round.end) return; // the game is over: nothing is lost
  setBusy(false);
  camera.cancel();
  const [title, words, next] = explain(error);
  byId("trouble-title").textContent = title;
  byId("trouble-words").textContent = words;
  byId("trouble-next").textContent = next;
  byId("trouble").dataset.code = error.code ?? "";
  if (!byId("trouble").open) byId("trouble").showModal();
}

function recover() {
  byId("trouble").close();
  const { code } = byId("trouble").dataset;
  if (code === "BAD_SELECTION") history.replaceState(null, "", location.pathname);
  if (!game || code === "BAD_SELECTION") {
    begin();
    return;
  }
  game.redeal();
  if (!game.total) begin(); // no place of the split could be shown: perhaps by now
  else if (game.last) end();
  else if (session && !session.lost) nextRound();
  else connect();
}

// ---- hands

byId("begin").onclick = begin;
byId("aim-look").onclick = () => camera.commit();
byId("aim-cancel").onclick = () => {
  camera.cancel();
  byId("view").focus();
};
byId("trouble-next").onclick = recover;
byId("trouble").oncancel = (event) => event.preventDefault();
byId("help-open").onclick = () => byId("help").showModal();
byId("help-close").onclick = () => byId("help").close();
byId("lightbox").onclick = () => byId("lightbox").close();
byId("tabs").onclick = (event) => {
  const button = event.target.closest("button");
  if (button) tab(button.dataset.tab);
};
for (const button of document.querySelectorAll("[data-turn]")) {
  button.onclick = () => camera.add(...button.dataset.turn.split(",").map(Number));
}
for (const button of document.querySelectorAll("[data-zoom]")) {
  button.onclick = () => camera.add(0, 0, Number(button.dataset.zoom));
}
for (const button of document.querySelectorAll("[data-walk]")) button.onclick = () => walk(button.dataset.walk);

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const jumps = {
    v: () => (tab("street"), byId("view").focus()), m: () => (tab("map"), byId("map").focus()),
    r: () => (tab("notes"), byId("trace").focus()), "?": () => byId("help").showModal(),
  };
  const playing = document.body.dataset.screen === "play";
  if (jumps[event.key] && (playing || event.key === "?")) {
    event.preventDefault();
    jumps[event.key]();
  }
});

for (const kind of ["pointerdown", "keydown", "wheel"]) {
  addEventListener(kind, () => (inputAt = performance.now()), { passive: true });
}
setInterval(() => {
  const here = !document.hidden && performance.now() - inputAt < PRESENT_MS;
  if (here && session && !session.lost && !busy) session.request("state").catch(() => {});
}, KEEP_MS);
refresh();
