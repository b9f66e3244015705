// Coordinates as people type and paste them, by the rules of the environment's own reader of guesses
// (env_service/parsing.py and what it imports): decimal point or comma, degrees, minutes and seconds, letters before or after.

const TYPOGRAPHY = {
  "-": "−‐‑‒–—﹣－", "'": "′’‘ʹ`´", '"': "″”“ʺ", "°": "º˚", " ": "\u00a0\u2007\u2009\u202f\u3000*", ",": "，、،", ".": "٫", ":": "：",
  ";": "；", "(": "（", ")": "）",
};
const PLAIN = new Map(Object.entries(TYPOGRAPHY).flatMap(([plain, chars]) => [...chars].map((char) => [char, plain])));

const LETTER = String.raw`(?:[NSEW]|north|south|east|west)(?![a-z])`;
const DEGREE_MARK = String.raw`(?:°|deg(?:rees?)?\b\.?|d(?=\s?[0-9]))`;
const MINUTE_MARK = String.raw`(?:'(?!')|min(?:utes?)?\b|m(?=\s?[0-9]))`;
const SECOND_MARK = String.raw`(?:"|''|sec(?:onds?)?\b|s\b)`; // an "s" may be the south's letter, see `south`
const PART = String.raw`[0-9]{1,2}(?:[.,][0-9]{1,12})?`;
const NUMBER = String.raw`(?:[0-9]{1,20}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:e[+-]?[0-9]{1,3})?|[0-9]{1,3},[0-9]{1,15}`;

/** One angle: a number with its degree sign, or whole degrees with minutes and perhaps seconds. */
const angle = (p) => String.raw`(?<${p}before>${LETTER}\s?)?(?<${p}sign>[+-]?)(?:`
  + String.raw`(?<${p}deg>[0-9]{1,3})(?<${p}mark>\s?${DEGREE_MARK}\s?|\s)(?<${p}min>${PART})(?:\s?(?<${p}minmark>${MINUTE_MARK}))?`
  + String.raw`(?:\s?(?<=[\s'a-z])(?<${p}sec>${PART})(?:\s?(?<${p}secmark>${SECOND_MARK}))?)?`
  + String.raw`|(?<${p}number>${NUMBER})\s?(?:°|degrees?\b|deg\b\.?)?)\s?(?<${p}after>${LETTER})?`;
const SEPARATOR = String.raw`\s*(?:[,;/|]|\band\b|\s)\s*`;
const ONE = new RegExp(`^${angle("a")}$`, "i");
const TWO = new RegExp(`^${angle("a")}${SEPARATOR}${angle("b")}$`, "i");
const LABEL = String.raw`(lat(?:itude)?|lon(?:g(?:itude)?)?|lng)`;
const LABELS = new RegExp(String.raw`\b${LABEL}\b(?:\s\(?\s?(${LETTER})\s?\)?\s?[:=])?\s*[:=]?`, "gi"); // "Latitude (S): 33.9"
const KEYS = new RegExp(String.raw`["']${LABEL}["']\s?:\s*["']?`, "gi"); // of JSON, or of what was meant for it
const CLOSING = /["']\s?(?=[,}]|$)/g;
const WHOLE_LABEL = new RegExp(`^${LABEL}$`, "i");
const WRAPPING_TAG = /<\/?\s?guess\b[^<>]*>/gi;
const WRAPPING = /[()[\]{}]/g;

/** The environment's plain characters: typographic signs, full-width ones and spaces in their plain form. */
function plain(text) {
  const simple = [...text].map((char) => PLAIN.get(char) ?? (/[！-～]/.test(char) ? char.normalize("NFKC") : char));
  return simple.join("").replace(/\s+/g, " ").trim();
}

/** An angle's value and axis ("ns", "ew" or "" where no letter says so), or null. */
function value(groups, p) {
  const [before, after] = [groups[`${p}before`]?.trim() ?? "", groups[`${p}after`] ?? ""];
  if (before && after) return null;
  const letter = (before || after).charAt(0).toLowerCase() || south(groups[`${p}secmark`] ?? "", groups[`${p}minmark`] ?? "");
  const part = (name) => Number((groups[p + name] ?? "0").replace(",", "."));
  const [minutes, seconds] = [part("min"), part("sec")];
  if (minutes >= 60 || seconds >= 60) return null;
  // Minutes need a sign that these are degrees: a mark, or a letter. "48 51" alone is a pair.
  if (groups[`${p}deg`] && !groups[`${p}mark`].trim() && !letter) return null;
  const size = groups[`${p}deg`] ? part("deg") + minutes / 60 + seconds / 3600 : part("number");
  const negative = groups[`${p}sign`] === "-" || letter === "s" || letter === "w";
  return { deg: negative ? -size : size, axis: { n: "ns", s: "ns", e: "ew", w: "ew" }[letter] ?? "" };
}

/** Seconds are a small s after minutes that are called m or min; any other s after them is the south's letter. */
const south = (secondMark, minuteMark) => (
  secondMark === "S" || (secondMark === "s" && !/^m/i.test(minuteMark)) ? "s" : "");

const fits = (angle, axis) => angle && (!angle.axis || angle.axis === axis);

/** Two angles as a place; letters decide over order. Null if they name one axis twice, or lie off the globe. */
function place(a, b) {
  if (!a || !b) return null;
  const swapped = a.axis === "ew" || b.axis === "ns";
  const [lat, lon] = swapped ? [b, a] : [a, b];
  return named(lat, lon);
}

/** A latitude and a longitude as a place; null if a letter says otherwise, or it lies off the globe. */
function named(lat, lon) {
  if (!fits(lat, "ns") || !fits(lon, "ew")) return null;
  return Math.abs(lat.deg) <= 90 && Math.abs(lon.deg) <= 180 ? { lat: lat.deg, lon: lon.deg } : null;
}

/** One angle out of the text of a field: `{deg, axis}`, or null. */
export function readAngle(text) {
  const match = ONE.exec(plain(text));
  return match && value(match.groups, "a");
}

/** Both coordinates out of one text ("48.86, 2.29", `48°51'N 2°21'E`, labelled, as JSON, in a guess tag), or null. */
export function readPair(text) {
  const json = fromJson(text);
  if (json) return json;
  const names = [];
  const even = plain(text);
  const unquoted = KEYS.test(even) ? even.replace(KEYS, "$1: ").replace(CLOSING, "") : even;
  const bare = unquoted.replace(WRAPPING_TAG, " ").replace(LABELS, (_, name, letter) => {
    names.push(name[1].toLowerCase());
    return ` ${letter ?? ""} `;
  }).replace(WRAPPING, " ");
  const match = TWO.exec(bare.replace(/\s+/g, " ").trim());
  if (!match || ![0, 2].includes(names.length)) return null;
  const [a, b] = [value(match.groups, "a"), value(match.groups, "b")];
  if (!names.length) return place(a, b);
  if (names[0] === names[1]) return null;
  return names[0] === "a" ? named(a, b) : named(b, a);
}

/** The place of a whole JSON object, whatever else stands in it; null if the text is none or names none. */
function fromJson(text) {
  let object;
  try {
    object = JSON.parse(text.replace(WRAPPING_TAG, " "));
  } catch {
    return null;
  }
  const parts = {};
  for (const [key, value] of Object.entries(object ?? {})) {
    if (!WHOLE_LABEL.test(key)) continue;
    const one = typeof value === "number" ? { deg: value, axis: "" } : typeof value === "string" ? readAngle(value) : null;
    if (one) parts[key[1].toLowerCase()] = one;
  }
  return parts.a && parts.o ? named(parts.a, parts.o) : null;
}

/**
 * The place that the two fields name.
 * @param {string} lat text of the latitude field; a whole pair pasted into either field counts alone
 * @param {string} lon text of the longitude field
 * @returns {{place: object | null, pasted: boolean, bad: boolean[]}} `bad` marks the fields that say nothing readable
 */
export function readPlace(lat, lon) {
  const [a, b] = [readAngle(lat), readAngle(lon)];
  const pairs = [[lat, a, lon], [lon, b, lat]].map(([text, one, other]) => {
    // "48 51" beside a filled field may well be meant as degrees and minutes.
    const clear = !other.trim() || /[.,;/|]|[^\s\d+-]/.test(plain(text));
    return one || !clear ? null : readPair(text);
  });
  const pair = pairs[0] ?? pairs[1];
  if (pair && !(pairs[0] && pairs[1])) return { place: pair, pasted: true, bad: [false, false] };
  const found = place(a, b);
  const wrong = (text, angle, most) => text.trim() !== "" && (!angle || Math.abs(angle.deg) > most);
  const swapped = a?.axis === "ew" || b?.axis === "ns";
  const bad = [wrong(lat, a, swapped ? 180 : 90), wrong(lon, b, swapped ? 90 : 180)];
  return { place: found, pasted: false, bad: !found && a && b && !bad.includes(true) ? [true, true] : bad };
}
