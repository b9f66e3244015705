// The rollout: every call as a model would have written it, what it cost, what came back.

import { element, icon } from "./dom.js";

/**
 * One entry of the trace.
 * @param turn a turn as the game noted it
 * @param {Map} tools the service's tools by op
 * @param {{onshow: (turn) => void, onuse?: (place) => void}} events
 */
export function entry(turn, tools, { onshow, onuse }) {
  const { action, observation } = turn;
  const item = element("li", { className: `turn ${action.op}` });
  item.append(element("span", { className: "number", textContent: turn.number || "·" }));
  if (turn.image) {
    const shown = element("button", { type: "button", className: "thumb", onclick: () => onshow(turn) });
    const what = observation.image_kind === "map" ? "map" : "view";
    shown.setAttribute("aria-label", `See the ${what} of turn ${turn.number} again`);
    shown.append(element("img", { src: turn.image, alt: "", loading: "lazy" }));
    item.append(shown);
  }
  const words = element("div", { className: "words" });
  const head = element("p", { className: "call" });
  head.append(element("code", { textContent: written(action, tools) }));
  if (turn.number) head.append(element("span", { className: "price", textContent: turn.cost ? turn.cost.toFixed(2) : "free" }));
  words.append(head, element("p", { className: "said", textContent: turn.number ? observation.feedback : observation.prompt }));
  if (action.op === "pin" && onuse) {
    const use = element("button", { type: "button", className: "quiet", textContent: "Make it the candidate" });
    use.prepend(icon("map"));
    use.onclick = () => onuse({ lat: action.lat, lon: action.lon });
    words.append(use);
  }
  item.append(words);
  return item;
}

/** A call in words: "look(heading_deg=120, fov_deg=60)". */
export function written(action, tools) {
  if (action.op === "reset") return "the opening view";
  const given = Object.entries(action).filter(([name]) => name !== "op");
  const value = (x) => (typeof x === "number" ? String(Math.round(x * 1e4) / 1e4) : JSON.stringify(x));
  return `${tools.get(action.op)?.name ?? action.op}(${given.map(([name, x]) => `${name}=${value(x)}`).join(", ")})`;
}
