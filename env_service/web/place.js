// The form below the map: the candidate, and the calls that are made about it.

import { readPlace } from "./coordinates.js";
import { byId } from "./dom.js";
import { clamp, formatPlace } from "./geo.js";

// Calls that need a candidate; the others do not.
const ABOUT_A_PLACE = new Set(["pin", "guess", "reverse_geocode", "view_map", "measure"]);
const SPAN = { least: 0.02, most: 180 };

export class PlaceForm {
  /**
   * @param {WorldMap} map the map that shows the candidate and the pins
   * @param {(action) => Promise<boolean>} call makes a call of the environment
   */
  constructor(map, call) {
    this.map = map;
    this.call = call;
    this.pins = [];
    this.lat = byId("lat");
    this.lon = byId("lon");
    this.label = byId("label");
    this.words = byId("place-words");
    this.toolmap = byId("toolmap");
    for (const input of [this.lat, this.lon]) {
      input.addEventListener("input", () => this.#typed());
      input.addEventListener("change", () => this.#tidy());
    }
    byId("place").addEventListener("submit", (event) => event.preventDefault());
    byId("place").addEventListener("click", (event) => {
      const button = event.target.closest("[data-call]");
      if (button) this.#make(button.dataset.call);
    });
    byId("map-in").onclick = () => map.zoom(1.8);
    byId("map-out").onclick = () => map.zoom(1 / 1.8);
    byId("map-home").onclick = () => map.home();
    const [enlarge, close] = this.toolmap.querySelectorAll("button");
    close.onclick = () => (this.toolmap.hidden = true);
    enlarge.onclick = () => this.toolmap.classList.toggle("large");
  }

  /** Take a place as the candidate. Costs nothing: nobody is asked. */
  choose({ lat, lon }) {
    // What is sent is what is read: four decimals, some ten metres.
    this.lat.value = lat.toFixed(4);
    this.lon.value = lon.toFixed(4);
    this.map.candidate = { lat: Number(this.lat.value), lon: Number(this.lon.value) };
    this.#settle(this.#told(this.map.candidate));
  }

  /** Start of a round. */
  clear() {
    this.map.candidate = null;
    this.map.pins = this.pins = [];
    this.lat.value = this.lon.value = this.label.value = "";
    this.toolmap.hidden = true;
    this.#settle("");
  }

  /** Show what a call brought: pins as the environment knows them, and a map if it drew one. */
  take(action, turn) {
    this.map.pins = this.pins = turn.observation.pins;
    if (action.op === "pin") this.label.value = "";
    if (turn.observation.image_kind === "map") {
      const picture = this.toolmap.querySelector("img");
      picture.src = turn.image;
      picture.alt = `The tool's map: ${turn.observation.feedback}`;
      this.toolmap.hidden = false;
    }
    this.map.draw();
  }

  /** Say what came of a call, if it is one of this form's; where one panel shows at a time, no other is seen. */
  say(op, words) {
    if (document.querySelector(`[data-call="${op}"]`)) this.words.textContent = words;
  }

  /** The keyboard moved the map: say where its middle is. */
  moved() {
    if (this.map.keyed && document.activeElement === this.map.canvas) this.words.textContent = this.map.spoken;
  }

  /** Which calls there are, what they cost, and whether they can be made now. */
  allow(able, tools, busy) {
    this.able = able;
    this.busy = busy;
    for (const button of document.querySelectorAll("[data-call]")) {
      const tool = tools.get(button.dataset.call);
      button.dataset.words ??= button.textContent;
      const price = tool?.cost ? ` ${tool.cost.toFixed(2)}` : "";
      if (button.dataset.price !== price) {
        button.dataset.price = price;
        button.textContent = button.dataset.words;
        if (price) button.append(Object.assign(document.createElement("small"), { textContent: price }));
      }
      button.hidden = !tool || !able(tool.name);
      button.disabled = busy || !this.#ready(button.dataset.call);
    }
    byId("label-field").hidden = !able("place_pin");
    byId("more").hidden = !able("view_map") && !able("reverse_geocode");
  }

  #ready(op) {
    if (ABOUT_A_PLACE.has(op) && !this.map.candidate) return false;
    return !["measure", "clear_pins", "list_pins"].includes(op) || this.pins.length > 0;
  }

  #make(op) {
    byId("more").open = false;
    const { lat, lon } = this.map.candidate ?? {};
    const span_deg = Math.round(clamp(this.map.spanDeg, SPAN.least, SPAN.most) * 100) / 100;
    const from = this.pins.at(-1);
    const actions = {
      pin: () => ({ op, lat, lon, label: this.label.value.trim() || "candidate", span_deg }),
      guess: () => ({ op, lat, lon }),
      view_map: () => ({ op, lat, lon, span_deg }),
      reverse_geocode: () => ({ op, lat, lon }),
      measure: () => ({ op, lat_a: from.lat, lon_a: from.lon, lat_b: lat, lon_b: lon }),
      list_pins: () => ({ op }),
      clear_pins: () => ({ op }),
    };
    this.call(actions[op]());
  }

  #typed() {
    const { place, bad } = readPlace(this.lat.value, this.lon.value);
    this.map.candidate = place;
    [this.lat, this.lon].forEach((input, i) => input.setAttribute("aria-invalid", String(bad[i])));
    const empty = !this.lat.value.trim() && !this.lon.value.trim();
    const missing = this.lat.value.trim() ? "longitude" : "latitude";
    const help = bad.includes(true)
      ? "Latitude is -90 to 90, longitude -180 to 180: 48.8584 or 48°51'30\" N. A pair may stand in one field."
      : `The ${missing} is missing.`;
    this.#settle(place ? this.#told(place) : empty ? "" : help);
  }

  /** A pair that was put into one field is spread over both, once the hand has left it. */
  #tidy() {
    const { place, pasted } = readPlace(this.lat.value, this.lon.value);
    if (!pasted) return;
    this.lat.value = Number(place.lat.toFixed(6));
    this.lon.value = Number(place.lon.toFixed(6));
    this.#typed();
  }

  #told(place) {
    return `Candidate at ${formatPlace(place)}. Nothing is spent yet.`;
  }

  #settle(words) {
    for (const input of [this.lat, this.lon]) if (this.map.candidate) input.setAttribute("aria-invalid", "false");
    this.words.textContent = words;
    for (const button of document.querySelectorAll("[data-call]")) {
      button.disabled = this.busy || !this.#ready(button.dataset.call);
    }
    this.map.draw();
  }
}
