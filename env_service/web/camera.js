// The picture and how one aims the camera. Turning previews on the picture at hand, for nothing; only what
// is committed becomes a call.

import { clamp, compassName, compassPoint, wholeHeading } from "./geo.js";
import { drawCompass } from "./compass.js";

const RAD = Math.PI / 180;
const DRAG_PX = 10; // a shorter drag is a tap and spends nothing
const PAUSE_MS = 750; // wheel, keys and buttons add up until a pause this long
// What the tools take: a person may look wherever a model can.
const FOV = { least: 10, most: 120 };
const PITCH = 90;

export class Camera {
  /**
   * @param {{view: HTMLElement, frame: HTMLElement, picture: HTMLImageElement, compass: HTMLCanvasElement,
   *   aim: HTMLElement, words: HTMLElement}} parts the elements that make up the view
   * @param {{onlook: (aim) => void, onwalk: (direction) => void}} events what was committed
   */
  constructor(parts, { onlook, onwalk }) {
    Object.assign(this, parts);
    this.onlook = onlook;
    this.onwalk = onwalk;
    this.pose = { heading: 0, pitch: 0, fov: 90 };
    this.can = { look: false, zoom: false };
    this.delta = null; // the aim not yet committed, as differences from the pose
    this.busy = false;
    this.pointers = new Map();
    this.#listen();
    new ResizeObserver(() => this.#preview()).observe(this.view);
  }

  /** Show a picture as it came, and stand as the observation says. */
  show(observation, source) {
    this.pose = {
      heading: observation.heading_deg, pitch: observation.pitch_deg, fov: observation.fov_deg,
    };
    if (source) this.picture.src = source;
    this.picture.alt = `Street view to the ${this.#facing()}`;
    this.cancel();
  }

  /** What may be done now; while a call is under way, nothing. */
  allow(can, busy) {
    this.can = can;
    this.busy = busy;
    this.view.classList.toggle("still", !can.look && !can.zoom);
    if (busy) clearTimeout(this.timer);
  }

  /** Add to the aim: degrees to the right, degrees up, and a factor on the field of view. */
  add(right, up, factor = 1) {
    if (this.busy) return;
    if (right || up ? !this.can.look : !this.can.zoom) return;
    const { heading, pitch, fov } = this.delta ?? { heading: 0, pitch: 0, fov: 0 };
    const { pitch: at, fov: wide } = this.pose;
    this.delta = {
      heading: clamp(heading + right, -180, 180),
      pitch: clamp(at + pitch + up, -PITCH, PITCH) - at,
      fov: clamp((wide + fov) * factor, FOV.least, FOV.most) - wide,
    };
    this.#preview();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.commit(), PAUSE_MS);
  }

  /** Spend a turn on the aim, if there is one. */
  commit() {
    clearTimeout(this.timer);
    const aim = this.aimed;
    if (!aim || this.busy) return;
    this.onlook(aim);
  }

  /** Forget the aim; costs nothing. */
  cancel() {
    clearTimeout(this.timer);
    this.delta = null;
    this.#preview();
  }

  /** The pose that a commit would ask for, in whole degrees, or null. */
  get aimed() {
    if (!this.delta) return null;
    const { heading, pitch, fov } = this.pose;
    const aim = {
      heading: wholeHeading(heading + this.delta.heading),
      pitch: Math.round(pitch + this.delta.pitch),
      fov: Math.round(fov + this.delta.fov),
    };
    const turned = Math.abs(this.delta.heading) >= 0.5 || Math.abs(this.delta.pitch) >= 0.5;
    return turned || aim.fov !== Math.round(fov) ? { ...aim, turned } : null;
  }

  #facing() {
    const { heading, pitch, fov } = this.pose;
    const tilt = Math.round(pitch) ? `, ${Math.abs(Math.round(pitch))} degrees ${pitch > 0 ? "up" : "down"}` : "";
    return `${compassName(heading)} (${wholeHeading(heading)} degrees)${tilt}, ${Math.round(fov)} degrees wide`;
  }

  // ---- preview

  /** Pixels from the middle of the picture to its edge over the tangent of half its field of view. */
  #focal(fov = this.pose.fov) {
    return this.frame.clientWidth / 2 / Math.tan((fov / 2) * RAD);
  }

  #preview() {
    const delta = this.delta ?? { heading: 0, pitch: 0, fov: 0 };
    const edge = this.frame.clientWidth;
    const scale = Math.tan((this.pose.fov / 2) * RAD) / Math.tan(((this.pose.fov + delta.fov) / 2) * RAD);
    const focal = this.#focal() * scale;
    const shift = (deg) => (Math.abs(deg) < 75 ? clamp(focal * Math.tan(deg * RAD), -edge * scale, edge * scale)
      : Math.sign(deg) * edge * Math.max(scale, 1));
    this.picture.style.transform = this.delta
      ? `translate(${-shift(delta.heading)}px, ${shift(delta.pitch)}px) scale(${scale})` : "";
    drawCompass(this.compass, this.pose.heading + delta.heading, this.pose.fov + delta.fov);
    const aim = this.aimed;
    this.aim.hidden = !aim;
    if (!aim) return;
    const parts = [];
    if (aim.turned) parts.push(`${compassPoint(aim.heading)} ${aim.heading}°`);
    if (Math.round(delta.pitch)) parts.push(`${aim.pitch > 0 ? "+" : ""}${aim.pitch}° tilt`);
    if (Math.round(delta.fov)) parts.push(`${aim.fov}° wide`);
    this.words.textContent = parts.join(" · ");
  }

  // ---- hands

  #listen() {
    const { view, frame } = this;
    frame.addEventListener("pointerdown", (event) => {
      if (this.busy || event.button > 0 || event.target.closest("button")) return;
      frame.setPointerCapture(event.pointerId);
      clearTimeout(this.timer);
      if (!this.pointers.size) this.start = null;
      this.pointers.set(event.pointerId, this.#at(event));
      this.#grip();
    });
    frame.addEventListener("pointermove", (event) => {
      if (!this.pointers.has(event.pointerId)) return;
      this.pointers.set(event.pointerId, this.#at(event));
      this.#follow();
    });
    const release = (event) => {
      if (!this.pointers.delete(event.pointerId)) return;
      if (this.pointers.size) this.#grip();
      else if (event.type === "pointercancel" || this.moved < DRAG_PX) this.cancel();
      else this.commit();
    };
    frame.addEventListener("pointerup", release);
    frame.addEventListener("pointercancel", release);
    frame.addEventListener("wheel", (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 33 : 1;
      this.add(0, 0, Math.exp(clamp(event.deltaY * lines, -200, 200) / 500));
    }, { passive: false });
    view.addEventListener("keydown", (event) => this.#key(event));
  }

  #at(event) {
    const box = this.frame.getBoundingClientRect();
    return { x: event.clientX - box.left - box.width / 2, y: event.clientY - box.top - box.height / 2 };
  }

  /** Where fingers are: their middle, and how far apart. */
  #hold() {
    const held = [...this.pointers.values()];
    const middle = { x: 0, y: 0 };
    for (const { x, y } of held) (middle.x += x / held.length), (middle.y += y / held.length);
    const apart = held.length > 1 ? Math.hypot(held[0].x - held[1].x, held[0].y - held[1].y) : 0;
    return { middle, apart };
  }

  #grip() {
    if (!this.start) this.moved = 0;
    this.start = { ...this.#hold(), delta: this.delta ?? { heading: 0, pitch: 0, fov: 0 } };
  }

  /** The point of the picture that was gripped stays under the finger. */
  #follow() {
    const { middle, apart } = this.#hold();
    const from = this.start;
    const spread = from.apart && apart ? apart / from.apart : 1;
    this.moved = Math.max(
      this.moved, Math.hypot(middle.x - from.middle.x, middle.y - from.middle.y), Math.abs(apart - from.apart));
    if (this.moved < DRAG_PX) return;
    const focal = this.#focal();
    const angle = (px) => Math.atan(px / focal) / RAD;
    const delta = { ...from.delta };
    if (this.can.look) {
      delta.heading += angle(from.middle.x) - angle(middle.x);
      delta.pitch += angle(middle.y) - angle(from.middle.y);
      delta.pitch = clamp(this.pose.pitch + delta.pitch, -PITCH, PITCH) - this.pose.pitch;
    }
    if (this.can.zoom) {
      delta.fov = clamp((this.pose.fov + from.delta.fov) / spread, FOV.least, FOV.most) - this.pose.fov;
    }
    this.delta = delta;
    this.#preview();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.view) return;
    const step = event.shiftKey ? 10 : 30;
    const keys = {
      ArrowLeft: () => this.add(-step, 0), a: () => this.add(-step, 0),
      ArrowRight: () => this.add(step, 0), d: () => this.add(step, 0),
      ArrowUp: () => this.add(0, step / 2), ArrowDown: () => this.add(0, -step / 2),
      "+": () => this.add(0, 0, 0.7), "=": () => this.add(0, 0, 0.7), "-": () => this.add(0, 0, 1 / 0.7),
      Enter: () => this.commit(), Escape: () => this.cancel(),
      w: () => this.onwalk("forward"), s: () => this.onwalk("backward"),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
