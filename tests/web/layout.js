() => {
  // What of the visible page cannot be reached: sticks out of the window, lies under something else, overflows.
  const seen = (node) => node.checkVisibility({ visibilityProperty: true }) && !node.closest("dialog, details:not([open]) > div");
  const name = (node) => node.id || node.ariaLabel || node.textContent.trim();
  const outside = [], covered = [];
  const hands = "header button, #tabs button, .pad button, .pad select, #frame, #map, .place input, .place button, .place summary, .hint, #last-turn";
  for (const node of [...document.querySelectorAll(hands)].filter(seen)) {
    const { left, top, right, bottom, width, height } = node.getBoundingClientRect();
    if (!height) continue;
    if (left < -0.5 || top < -0.5 || right > innerWidth + 0.5 || bottom > innerHeight + 0.5) {
      outside.push(`${name(node)} ${[left, top, right, bottom].map(Math.round)}`);
    }
    if (!node.matches("button, select, input, summary")) continue;
    for (const [x, y] of [[0.5, 0.5], [0.04, 0.5], [0.96, 0.5], [0.5, 0.9]]) {
      const hit = document.elementFromPoint(left + width * x, top + height * y);
      if (hit && !node.contains(hit)) covered.push(`${name(node)} under ${name(hit)}`);
    }
  }
  const frame = document.querySelector("#frame").getBoundingClientRect();
  return {
    outside, covered, picture: Math.min(frame.width, frame.height),
    square: Math.abs(frame.width - frame.height) < 1.5,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    high: document.documentElement.scrollHeight - innerHeight,
    room: [innerWidth, innerHeight],
  };
}
