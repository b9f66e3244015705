() => {
  // What of the visible page is hard to read, has no name, or is too small to hit. Evaluated in the page by tests.
  const parse = (color) => {
    const [r, g, b, a = 1] = color.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, under) =>
    Object.fromEntries(["r", "g", "b"].map((c) => [c, top[c] * top.a + under[c] * (1 - top.a)]));
  // On the picture anything may lie behind a text; white is the worst there is for light letters.
  const behind = (node) => {
    const layers = [];
    let base = { r: 13, g: 23, b: 29 };
    for (let at = node; at; at = at.parentElement) {
      if (at.matches(".frame, .map")) {
        base = { r: 255, g: 255, b: 255 };
        break;
      }
      layers.unshift(parse(getComputedStyle(at).backgroundColor));
    }
    return layers.reduce((under, layer) => over(layer, under), base);
  };
  const light = ({ r, g, b }) => {
    const part = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const seen = (node) => node.checkVisibility({ visibilityProperty: true }) && !node.closest(".unseen");
  const faint = [];
  let texts = 0;
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !seen(node) || node.closest(":disabled, [aria-disabled=true], option")) continue;
    texts += 1;
    const ground = behind(node);
    const [a, b] = [light(over(parse(getComputedStyle(node).color), ground)), light(ground)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push(`${node.tagName} ${node.textContent.trim().slice(0, 30)} ${contrast.toFixed(2)}`);
  }
  const hands = [...document.querySelectorAll("button, a, input, select, summary, canvas[tabindex]")].filter(seen);
  const labelled = (node) => [...(node.labels ?? [])].some((label) => label.textContent.trim());
  const small = hands.filter((node) => !node.matches("p a")).filter((node) => {
    const { width, height } = node.getBoundingClientRect();
    return width < 32 || height < 32;
  });
  const brief = (nodes) => nodes.map((node) => node.outerHTML.slice(0, 90));
  return {
    texts,
    faint,
    nameless: brief(hands.filter((node) => !(node.textContent.trim() || node.ariaLabel || labelled(node)))),
    small: brief(small),
    undescribed: brief([...document.querySelectorAll("img:not([alt])")]),
    width: document.documentElement.scrollWidth,
    room: innerWidth,
  };
}
