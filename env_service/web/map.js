// The world map: pan, zoom, pick a place. Drawn on a canvas from our own outlines; nothing on it knows a task.

import { clamp, formatPlace, greatCircle, KM_PER_DEGREE, project, unproject, wrapLon } from "./geo.js";
import { outlines } from "./outlines.js";
import { candidateMark, GROUND, pinMark, scaleBar, spot } from "./marks.js";

const CLOSEST = 400_000; // pixels that the whole world would be wide: some 100 m each
const FINE_FROM = 1_100; // from this width on the finer outlines are drawn
const CLICK_PX = 6;

/**
 * A map on a canvas.
 *
 * Attributes set by the owner: `pins` [{index, lat, lon}], `candidate` {lat, lon} or null, `arcs`
 * [{guess, truth, label}]. Call `draw()` after changing them.
 */
export class WorldMap {
  /**
   * @param {HTMLCanvasElement} canvas a canvas that fills a positioned box
   * @param {{onpick?: (place) => void, onmove?: (map) => void}} events a place was picked; the window moved
   * @param {boolean} bare only a backdrop: no scale, and land from edge to edge
   */
  constructor(canvas, { onpick = null, onmove = () => {} } = {}, bare = false) {
    this.canvas = canvas;
    this.onpick = onpick;
    this.onmove = onmove;
    this.bare = bare;
    this.pins = [];
    this.arcs = [];
    this.candidate = null;
    this.x = 0.5;
    this.y = 0.42;
    this.scale = 0; // pixels per world
    this.width = this.height = 0;
    this.grown = 1; // share of the arcs that is drawn, while they grow
    this.layers = {};
    this.pointers = new Map();
    new ResizeObserver(() => this.#resize()).observe(canvas);
    this.#listen();
    outlines("110m").then((layer) => {
      this.layers.coarse = layer;
      this.draw();
    }, () => {});
  }

  /** Height of the window in degrees of latitude. */
  get spanDeg() {
    const half = this.height / 2 / this.scale;
    return unproject(0, this.y - half).lat - unproject(0, this.y + half).lat;
  }

  get middle() {
    return unproject(this.x, this.y);
  }

  /** Zoom by a factor around a pixel of the canvas; around the middle by default. */
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const before = this.scale;
    this.scale = clamp(before * factor, this.#widest(), CLOSEST);
    this.x += (px - this.width / 2) * (1 / before - 1 / this.scale);
    this.y += (py - this.height / 2) * (1 / before - 1 / this.scale);
    this.#settle();
  }

  pan(dx, dy) {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.#settle();
  }

  /** Show the whole world. */
  home() {
    this.scale = this.#widest();
    this.x = 0.5;
    this.y = 0.42;
    this.#settle();
  }

  /** Show all of these places, with room around them; at least `leastDeg` degrees across. */
  fit(places, leastDeg = 4) {
    if (!places.length || !this.width) return;
    const middle = places[0].lon;
    const at = places.map(({ lat, lon }) => project(lat, middle + wrapLon(lon - middle)));
    const [west, east] = [Math.min(...at.map((p) => p.x)), Math.max(...at.map((p) => p.x))];
    const [north, south] = [Math.min(...at.map((p) => p.y)), Math.max(...at.map((p) => p.y))];
    const across = Math.max(east - west, leastDeg / 360);
    const down = Math.max(south - north, leastDeg / 360);
    this.x = (west + east) / 2;
    this.y = (north + south) / 2;
    const scale = Math.min(this.width / across, this.height / down) * 0.68;
    this.scale = clamp(scale, this.#widest(), CLOSEST);
    this.#settle();
  }

  /** Let the lines between guesses and truths grow; at once where people want no motion. */
  growArcs() {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.draw();
    const started = performance.now();
    const step = (now) => {
      const t = clamp((now - started) / 900, 0, 1);
      this.grown = 1 - (1 - t) ** 3;
      this.draw();
      if (t < 1) requestAnimationFrame(step);
    };
    return requestAnimationFrame(step);
  }

  draw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      if (this.width) this.#paint();
    });
  }

  #widest() {
    return this.bare ? Math.max(this.width, this.height) * 1.2 : Math.max(this.width * 0.98, this.height * 0.8, 64);
  }

  #settle() {
    this.scale = clamp(this.scale, this.#widest(), CLOSEST);
    this.x = ((this.x % 1) + 1) % 1;
    const half = this.height / 2 / this.scale;
    this.y = half > 0.5 ? 0.5 : clamp(this.y, half * 0.5, 1 - half * 0.5);
    this.onmove(this);
    this.draw();
  }

  #resize() {
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    const first = this.width === 0;
    [this.width, this.height] = [clientWidth, clientHeight];
    this.ratio = Math.min(devicePixelRatio || 1, 2);
    this.canvas.width = Math.round(clientWidth * this.ratio);
    this.canvas.height = Math.round(clientHeight * this.ratio);
    if (first) this.home();
    this.#settle();
    if (this.wanted) [this.wanted] = [null, this.wanted()];
  }

  /** Do something once the map has a size; at once if it has one. */
  whenSized(action) {
    if (this.width && this.canvas.clientWidth) action();
    else this.wanted = action;
  }

  // ---- hands

  #listen() {
    const canvas = this.canvas;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      if (!this.pointers.size) this.travelled = 0;
      this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    });
    canvas.addEventListener("pointermove", (event) => this.#drag(event));
    canvas.addEventListener("pointerup", (event) => {
      const last = this.pointers.delete(event.pointerId) && !this.pointers.size;
      if (last && this.travelled < CLICK_PX) this.pick(this.#placeAt(event.offsetX, event.offsetY));
    });
    canvas.addEventListener("pointercancel", (event) => {
      this.pointers.delete(event.pointerId);
      this.travelled = Infinity;
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 33 : 1;
      this.zoom(Math.exp(-clamp(event.deltaY * lines, -240, 240) / 400), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    for (const kind of ["focus", "blur"]) canvas.addEventListener(kind, () => this.draw());
  }

  #drag(event) {
    const held = this.pointers.get(event.pointerId);
    if (!held) return;
    const others = [...this.pointers.entries()].filter(([id]) => id !== event.pointerId);
    const now = { x: event.offsetX, y: event.offsetY };
    this.travelled += Math.hypot(now.x - held.x, now.y - held.y);
    if (others.length === 1) {
      const other = others[0][1];
      const grown = Math.hypot(now.x - other.x, now.y - other.y) / Math.hypot(held.x - other.x, held.y - other.y);
      this.travelled = Infinity;
      this.pan((now.x - held.x) / 2, (now.y - held.y) / 2);
      this.zoom(grown || 1, (now.x + other.x) / 2, (now.y + other.y) / 2);
    } else if (!others.length && this.travelled >= CLICK_PX) {
      this.pan(now.x - held.x, now.y - held.y);
    }
    this.pointers.set(event.pointerId, now);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = Math.min(this.width, this.height) * (event.shiftKey ? 0.04 : 0.18);
    const moves = {
      ArrowLeft: () => this.pan(step, 0),
      ArrowRight: () => this.pan(-step, 0),
      ArrowUp: () => this.pan(0, step),
      ArrowDown: () => this.pan(0, -step),
      "+": () => this.zoom(1.6),
      "=": () => this.zoom(1.6),
      "-": () => this.zoom(1 / 1.6),
      "0": () => this.home(),
      Enter: () => this.pick(this.middle),
      " ": () => this.pick(this.middle),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    this.keyed = true;
    move();
  }

  /** Take a place as the candidate, if this map lets one pick. */
  pick(place) {
    if (this.onpick) this.onpick({ lat: place.lat, lon: wrapLon(place.lon) });
  }

  #placeAt(px, py) {
    return unproject(this.x + (px - this.width / 2) / this.scale, this.y + (py - this.height / 2) / this.scale);
  }

  // ---- painting

  /** Pixel of a place on the copy of the world nearest to the middle. */
  #pixel({ lat, lon }) {
    const at = project(lat, lon);
    const away = at.x - this.x - Math.round(at.x - this.x);
    return [this.width / 2 + away * this.scale, this.height / 2 + (at.y - this.y) * this.scale];
  }

  #paint() {
    const ctx = this.canvas.getContext("2d");
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    ctx.fillStyle = GROUND.sea;
    ctx.fillRect(0, 0, this.width, this.height);
    this.#graticule(ctx);
    this.#land(ctx);
    for (const arc of this.arcs) this.#arc(ctx, arc);
    for (const pin of this.pins) pinMark(ctx, ...this.#pixel(pin), String(pin.index));
    if (this.candidate) candidateMark(ctx, ...this.#pixel(this.candidate));
    if (this.keyed && document.activeElement === this.canvas && this.onpick) this.#cross(ctx);
    if (!this.bare) scaleBar(ctx, this.width, this.height, this.#kmPerPixel());
  }

  #kmPerPixel() {
    return (360 / this.scale) * KM_PER_DEGREE * Math.cos((this.middle.lat * Math.PI) / 180);
  }

  #graticule(ctx) {
    const step = [30, 15, 10, 5, 2, 1, 0.5, 0.2].find((deg) => (deg / 360) * this.scale < 170) ?? 0.1;
    ctx.strokeStyle = GROUND.grid;
    ctx.lineWidth = 1;
    ctx.beginPath();
    const half = this.width / 2 / this.scale;
    for (let i = Math.ceil(((this.x - half - 0.5) * 360) / step); i <= ((this.x + half - 0.5) * 360) / step; i++) {
      const px = Math.round(this.width / 2 + ((i * step) / 360 + 0.5 - this.x) * this.scale) + 0.5;
      ctx.moveTo(px, 0);
      ctx.lineTo(px, this.height);
    }
    const { lat } = this.middle;
    for (let i = Math.ceil((lat - this.spanDeg) / step); i <= (lat + this.spanDeg) / step; i++) {
      if (Math.abs(i * step) > 85) continue;
      const py = Math.round(this.height / 2 + (project(i * step, 0).y - this.y) * this.scale) + 0.5;
      ctx.moveTo(0, py);
      ctx.lineTo(this.width, py);
    }
    ctx.stroke();
  }

  #land(ctx) {
    const layer = this.#layer();
    if (!layer) return;
    const [halfX, halfY] = [this.width / 2 / this.scale, this.height / 2 / this.scale];
    ctx.save();
    for (const turn of [-1, 0, 1]) {
      const seen = (line) =>
        line.east + turn > this.x - halfX && line.west + turn < this.x + halfX &&
        line.south > this.y - halfY && line.north < this.y + halfY;
      const rings = layer.rings.filter(seen);
      if (!rings.length) continue;
      ctx.setTransform(
        this.ratio * this.scale, 0, 0, this.ratio * this.scale,
        this.ratio * (this.width / 2 + (turn - this.x) * this.scale),
        this.ratio * (this.height / 2 - this.y * this.scale));
      ctx.lineJoin = "round";
      const land = new Path2D(), coasts = new Path2D(), borders = new Path2D();
      for (const ring of rings) {
        land.addPath(ring.fill);
        coasts.addPath(ring.stroke);
      }
      for (const line of layer.borders.filter(seen)) borders.addPath(line.stroke);
      ctx.fillStyle = GROUND.land;
      ctx.fill(land, "evenodd");
      ctx.strokeStyle = GROUND.border;
      ctx.lineWidth = 0.9 / this.scale;
      ctx.stroke(borders);
      ctx.strokeStyle = GROUND.coast;
      ctx.lineWidth = 0.8 / this.scale;
      ctx.stroke(coasts);
    }
    ctx.restore();
  }

  #layer() {
    if (this.scale < FINE_FROM) return this.layers.coarse;
    if (!this.layers.fine && !this.fetching) {
      this.fetching = outlines("50m").then((layer) => {
        this.layers.fine = layer;
        this.draw();
      }, () => {
        this.fetching = null;
      });
    }
    return this.layers.fine ?? this.layers.coarse;
  }

  #arc(ctx, { guess, truth, label }) {
    const way = greatCircle(truth, guess).reverse();
    const shown = way.slice(0, Math.max(2, Math.ceil(way.length * this.grown)));
    ctx.save();
    ctx.lineCap = "round";
    for (const turn of [-360, 0, 360]) {
      ctx.beginPath();
      const away = Math.round((project(0, truth.lon).x - this.x)) * -360 + turn;
      shown.forEach(({ lat, lon }, i) => {
        const at = project(lat, lon + away);
        const px = this.width / 2 + (at.x - this.x) * this.scale;
        const py = this.height / 2 + (at.y - this.y) * this.scale;
        if (i) ctx.lineTo(px, py);
        else ctx.moveTo(px, py);
      });
      for (const [width, color] of [[5, GROUND.casing], [2, GROUND.arc]]) {
        ctx.lineWidth = width;
        ctx.strokeStyle = color;
        ctx.stroke();
      }
    }
    ctx.restore();
    spot(ctx, ...this.#pixel(guess), GROUND.guess, label);
    if (this.grown === 1) spot(ctx, ...this.#pixel(truth), GROUND.truth, label);
  }

  #cross(ctx) {
    const [x, y] = [Math.round(this.width / 2) + 0.5, Math.round(this.height / 2) + 0.5];
    for (const [width, color] of [[4, GROUND.halo], [1.5, GROUND.ink]]) {
      ctx.lineWidth = width;
      ctx.strokeStyle = color;
      ctx.beginPath();
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        ctx.moveTo(x + 4 * dx, y + 4 * dy);
        ctx.lineTo(x + 15 * dx, y + 15 * dy);
      }
      ctx.stroke();
    }
  }

  /** Words for where the middle is, for those who steer by keyboard. */
  get spoken() {
    const digits = this.scale > 20_000 ? 2 : 1;
    return `Map centre ${formatPlace(this.middle, digits)}, ${Math.max(1, Math.round(this.spanDeg))} degrees high`;
  }
}
