// The marks on the map, and its colours.

export const GROUND = {
  sea: "#12313d", grid: "rgba(255,255,255,.055)", land: "#dccfae", border: "#a38f66", coast: "#6d7a66",
  ink: "#14212a", halo: "rgba(255,250,238,.92)", paper: "#fff8ea",
  arc: "#ffd28a", casing: "rgba(20,33,42,.72)", plate: "rgba(13,23,29,.72)", guess: "#f2552c", truth: "#0d6f56", pin: "#2f5d9e",
};
const FONT = "600 12px system-ui, sans-serif";

function drop(ctx, x, y, radius, color) {
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.bezierCurveTo(x - 2, y - radius * 0.9, x - radius, y - radius * 1.2, x - radius, y - radius * 2);
  ctx.arc(x, y - radius * 2, radius, Math.PI, 0);
  ctx.bezierCurveTo(x + radius, y - radius * 1.2, x + 2, y - radius * 0.9, x, y);
  ctx.closePath();
  ctx.fillStyle = color;
  ctx.fill();
  ctx.lineWidth = 1.5;
  ctx.strokeStyle = GROUND.paper;
  ctx.stroke();
}

/** A pin that the environment knows, with its number. */
export function pinMark(ctx, x, y, number) {
  drop(ctx, x, y, 10, GROUND.pin);
  write(ctx, number, x, y - 20, GROUND.paper);
}

/** The place under consideration: nobody but this page knows of it. */
export function candidateMark(ctx, x, y) {
  ctx.fillStyle = "rgba(20,33,42,.35)";
  ctx.beginPath();
  ctx.ellipse(x, y, 7, 3, 0, 0, 2 * Math.PI);
  ctx.fill();
  drop(ctx, x, y, 11, GROUND.guess);
  ctx.fillStyle = GROUND.paper;
  ctx.beginPath();
  ctx.arc(x, y - 22, 4, 0, 2 * Math.PI);
  ctx.fill();
}

/** One end of the line between guess and truth. */
export function spot(ctx, x, y, color, label = "") {
  const radius = label ? 10 : 8;
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fillStyle = color;
  ctx.fill();
  ctx.lineWidth = 2.5;
  ctx.strokeStyle = GROUND.paper;
  ctx.stroke();
  // Dark on the bright one, light on the dark one: either can be read.
  if (label) write(ctx, label, x, y, color === GROUND.guess ? "#1a0a04" : GROUND.paper);
}

function write(ctx, text, x, y, color) {
  ctx.font = FONT;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = color;
  ctx.fillText(text, x, y + 0.5);
}

/** A bar with a round number of kilometres, true at the middle of the map. */
export function scaleBar(ctx, width, height, kmPerPixel) {
  const most = Math.min(120, width * 0.28) * kmPerPixel;
  const power = 10 ** Math.floor(Math.log10(most));
  const km = [5, 2, 1].map((step) => step * power).find((value) => value <= most);
  const length = km / kmPerPixel;
  const [x, y] = [width - 18 - length, height - 16.5];
  ctx.fillStyle = GROUND.plate;
  ctx.beginPath();
  ctx.roundRect(x - 9, y - 24, length + 18, 32, 8);
  ctx.fill();
  ctx.strokeStyle = "rgba(255,248,234,.85)";
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.moveTo(x, y - 5);
  ctx.lineTo(x, y);
  ctx.lineTo(x + length, y);
  ctx.lineTo(x + length, y - 5);
  ctx.stroke();
  ctx.font = "11px system-ui, sans-serif";
  ctx.textAlign = "center";
  ctx.textBaseline = "bottom";
  ctx.fillStyle = GROUND.paper;
  const words = km >= 1 ? `${km.toLocaleString("en")} km` : `${Math.round(km * 1000)} m`;
  ctx.fillText(words, x + length / 2, y - 5);
}
