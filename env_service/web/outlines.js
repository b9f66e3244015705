// The world's outlines: fetched once per level of detail, decoded into paths in Mercator units (0..1).

import { project } from "./geo.js";

const UNITS_PER_DEGREE = 1000;
const loading = new Map();

/**
 * Outlines at a level of detail, "110m" or "50m".
 * @returns {Promise<{rings: Outline[], borders: Outline[]}>}
 */
export function outlines(detail) {
  if (!loading.has(detail)) {
    const asked = fetch(new URL(`outlines-${detail}.bin`, import.meta.url)).then(async (answer) => {
      if (!answer.ok) throw new Error(`the map's outlines: ${answer.status}`);
      return decode(await answer.arrayBuffer());
    });
    asked.catch(() => loading.delete(detail));
    loading.set(detail, asked);
  }
  return loading.get(detail);
}

/**
 * 32-bit whole numbers, little-endian: count of land rings, count of borders, their lengths in points, then
 * all points as (longitude, latitude) differences in thousandths of a degree, starting anew with each line.
 */
function decode(buffer) {
  const numbers = new Int32Array(buffer);
  const [rings, borders] = numbers;
  let at = 2 + rings + borders;
  const lines = [];
  for (let i = 0; i < rings + borders; i++) {
    const count = numbers[2 + i];
    lines.push(new Outline(numbers, at, count));
    at += 2 * count;
  }
  return { rings: lines.slice(0, rings), borders: lines.slice(rings) };
}

/** One line: a path to fill, a path to stroke, and the box around both. */
class Outline {
  constructor(numbers, at, count) {
    this.fill = new Path2D();
    this.stroke = new Path2D();
    let lon = 0, lat = 0, wasOnCut = false;
    this.west = this.north = Infinity;
    this.east = this.south = -Infinity;
    for (let i = 0; i < count; i++) {
      lon += numbers[at + 2 * i];
      lat += numbers[at + 2 * i + 1];
      const { x, y } = project(lat / UNITS_PER_DEGREE, lon / UNITS_PER_DEGREE);
      // Land is cut at 180 degrees and closed at the south pole; the cut is no coast.
      const onCut = Math.abs(lon) >= 179_990 || lat <= -89_990;
      if (i === 0) this.fill.moveTo(x, y);
      else this.fill.lineTo(x, y);
      if (i === 0 || (onCut && wasOnCut)) this.stroke.moveTo(x, y);
      else this.stroke.lineTo(x, y);
      wasOnCut = onCut;
      this.west = Math.min(this.west, x);
      this.east = Math.max(this.east, x);
      this.north = Math.min(this.north, y);
      this.south = Math.max(this.south, y);
    }
  }
}
