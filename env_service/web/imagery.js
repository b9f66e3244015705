// Whose pictures they are. Known only after the guess, when the environment says so; kept in this browser for
// the credits page.

import { element } from "./dom.js";

const KEPT = "seen-pictures";
const MOST = 200;
const LICENCES = { "CC-BY-SA-4.0": ["CC BY-SA 4.0", "https://creativecommons.org/licenses/by-sa/4.0/"] };
const CHANGES = "shown in part, reprojected";

/** The credit of one picture as nodes: contributor, source, licence, what was changed. */
export function credit(attribution, month) {
  const who = attribution.creator_username || attribution.creator || attribution.author || "unnamed contributor";
  const source = attribution.source || attribution.provider || "";
  const stated = attribution.licence || attribution.license || (/mapillary/i.test(source) ? "CC-BY-SA-4.0" : "");
  const nodes = [element("b", { textContent: who })];
  if (source) nodes.push(`, ${source}`);
  if (month) nodes.push(`, ${month}`);
  if (stated) {
    const [words, address] = LICENCES[stated] ?? [stated, ""];
    nodes.push(", ", address ? element("a", { href: address, rel: "license noopener", target: "_blank", textContent: words }) : words);
  }
  nodes.push(` (${CHANGES})`);
  return nodes;
}

/** Keep the credit of a finished round for the credits page. */
export function remember(end) {
  const seen = { attribution: end.metadata.attribution ?? {}, country: end.metadata.country ?? "", month: end.captured_at };
  const key = JSON.stringify(seen);
  const kept = recall().filter((other) => JSON.stringify(other) !== key);
  try {
    localStorage.setItem(KEPT, JSON.stringify([seen, ...kept].slice(0, MOST)));
  } catch {
    // A browser that keeps nothing shows the credit on the reveal alone.
  }
}

/** Credits of the pictures whose rounds were finished in this browser, latest first. */
export function recall() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? [];
  } catch {
    return [];
  }
}
