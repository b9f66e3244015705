// The ribbon above the picture: which way the camera looks, and how wide.

import { compassPoint, wrapHeading } from "./geo.js";

const ACROSS_DEG = 200;

/** Draw headings around `heading`; the lit part is what the field of view shows. */
export function drawCompass(canvas, heading, fov) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return;
  const ratio = Math.min(devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  const perDegree = width / ACROSS_DEG;
  const lit = Math.min(fov, ACROSS_DEG) * perDegree;
  ctx.fillStyle = "rgba(255,248,234,.13)";
  ctx.fillRect((width - lit) / 2, 0, lit, height);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  const first = Math.ceil((heading - ACROSS_DEG / 2) / 15) * 15;
  for (let deg = first; deg <= heading + ACROSS_DEG / 2; deg += 15) {
    const x = width / 2 + (deg - heading) * perDegree;
    const fade = 1 - Math.abs(deg - heading) / (ACROSS_DEG / 2 + 8);
    ctx.globalAlpha = Math.max(0.25, fade);
    const at = wrapHeading(deg);
    if (at % 45 === 0) {
      ctx.font = `${at % 90 === 0 ? 700 : 500} ${at % 90 === 0 ? 13 : 11}px system-ui, sans-serif`;
      ctx.fillStyle = at === 0 ? "#ff9a76" : "#fff8ea";
      ctx.fillText(compassPoint(at), x, height / 2 + 1);
    } else {
      ctx.fillStyle = "#fff8ea";
      ctx.fillRect(Math.round(x) - 0.5, height / 2 - 4, 1, 8);
    }
  }
  ctx.globalAlpha = 1;
  ctx.fillStyle = "#ff7a50";
  ctx.beginPath();
  ctx.moveTo(width / 2 - 5, 0);
  ctx.lineTo(width / 2 + 5, 0);
  ctx.lineTo(width / 2, 6);
  ctx.fill();
}
