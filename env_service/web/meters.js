// The bar: rounds, turns left, cost so far, points.

import { byId, element } from "./dom.js";
import { points } from "./game.js";

const MOST_PIPS = 24;

/** Turns left, cost and points. */
export function meters(observation, game) {
  const opening = game.round?.turns[0];
  if (!opening) return; // between two rounds there is nothing to say yet
  const all = opening.observation.steps_remaining;
  const left = observation.steps_remaining;
  byId("turns").textContent = observation.done ? "0" : `${left} of ${all}`;
  byId("meters").classList.toggle("short", left <= 2 && !observation.done);
  byId("cost").textContent = observation.action_cost.toFixed(2);
  byId("points").textContent = game.points.toLocaleString("en");
  const pips = byId("pips");
  const wanted = all <= MOST_PIPS ? all : 0;
  while (pips.children.length > wanted) pips.lastChild.remove();
  while (pips.children.length < wanted) pips.append(element("i"));
  [...pips.children].forEach((pip, i) => pip.classList.toggle("spent", i >= left));
}

/** One mark per round: played, at play, to come. */
export function rounds(list, game, screen) {
  list.hidden = !game || screen === "start";
  if (!game) return;
  const marks = game.tasks.map((_, i) => {
    const round = game.rounds[i];
    const stands = round?.end ? `${points(round)} points` : round ? "at play" : "to come";
    const mark = element("li", { title: `Round ${i + 1}: ${stands}`, className: round?.end ? "done" : round ? "now" : "" });
    mark.append(element("span", { className: "unseen", textContent: `Round ${i + 1}: ${stands}` }));
    return mark;
  });
  list.replaceChildren(...marks);
}
