// Two helpers for building elements.

export const byId = (id) => document.getElementById(id);

/** An element with properties set. Text is always set as text, never as markup. */
export const element = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);

/** An icon of the page's sprite. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}
