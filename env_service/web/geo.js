// Positions on the globe and on the map, and how they are written. Pure functions; degrees throughout.

export const MAX_LAT = 85.05; // where a square Mercator map ends
const RADIUS_KM = 6371.0088;
const RAD = Math.PI / 180;
const POINTS = "N NNE NE ENE E ESE SE SSE S SSW SW WSW W WNW NW NNW".split(" ");
const POINT_NAMES = ["north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west"];

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
export const wrapHeading = (deg) => ((deg % 360) + 360) % 360;
/** A heading in whole degrees, 0 to 359: rounded first, so that 359.6 is 0 and never 360. */
export const wholeHeading = (deg) => wrapHeading(Math.round(deg));
export const wrapLon = (lon) => ((((lon + 180) % 360) + 360) % 360) - 180;

/** Mercator position with the whole world in 0..1, x to the east and y to the south. */
export function project(lat, lon) {
  const s = Math.sin(clamp(lat, -MAX_LAT, MAX_LAT) * RAD);
  return { x: lon / 360 + 0.5, y: 0.5 - Math.log((1 + s) / (1 - s)) / (4 * Math.PI) };
}

/** The inverse of `project`; longitude in -180..180. */
export function unproject(x, y) {
  const lat = Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) / RAD;
  return { lat: clamp(lat, -MAX_LAT, MAX_LAT), lon: wrapLon((x - 0.5) * 360) };
}

/** Points along the shortest way between two places, with longitudes that run on past 180 degrees. */
export function greatCircle(a, b, steps = 96) {
  const from = vector(a), to = vector(b);
  const dot = clamp(from[0] * to[0] + from[1] * to[1] + from[2] * to[2], -1, 1);
  const angle = Math.acos(dot);
  if (angle < 1e-9) return [a, b];
  const points = [];
  let last = a.lon;
  for (let i = 0; i <= steps; i++) {
    const f = Math.sin((1 - i / steps) * angle) / Math.sin(angle);
    const g = Math.sin((i / steps) * angle) / Math.sin(angle);
    const [x, y, z] = [0, 1, 2].map((k) => f * from[k] + g * to[k]);
    let lon = Math.atan2(y, x) / RAD;
    lon += 360 * Math.round((last - lon) / 360);
    last = lon;
    points.push({ lat: Math.atan2(z, Math.hypot(x, y)) / RAD, lon });
  }
  return points;
}

function vector({ lat, lon }) {
  const c = Math.cos(lat * RAD);
  return [c * Math.cos(lon * RAD), c * Math.sin(lon * RAD), Math.sin(lat * RAD)];
}

/** Kilometres of a distance in degrees of latitude; for scale bars. */
export const KM_PER_DEGREE = RAD * RADIUS_KM;

export const compassPoint = (heading) => POINTS[Math.round(wrapHeading(heading) / 22.5) % 16];
export const compassName = (heading) => POINT_NAMES[Math.round(wrapHeading(heading) / 45) % 8];

/** "48.86° N, 2.29° E" */
export function formatPlace({ lat, lon }, digits = 2) {
  const part = (value, positive, negative) =>
    `${Math.abs(value).toFixed(digits)}° ${value >= 0 ? positive : negative}`;
  return `${part(lat, "N", "S")}, ${part(lon, "E", "W")}`;
}

/** "640 m", "12.4 km", "1,482 km" */
export function formatDistance(km) {
  if (km < 1) return `${Math.round(km * 1000)} m`;
  return km < 100 ? `${km.toFixed(1)} km` : `${Math.round(km).toLocaleString("en")} km`;
}
