/* The reward explorer: two formulas under two sliders. The parameters come with the page's data. */
(function () {
  "use strict";
  const p = window.geoReport.rewards;

  function gameReward(km, cost) {
    return Math.max(0, Math.exp(-km / p.short_decay_km) - cost);
  }

  function boardReward(km, cost) {
    const w = p.short_weight;
    const score = w * Math.exp(-km / p.short_decay_km) + (1 - w) * Math.exp(-km / p.long_decay_km);
    return score * (1 - Math.min(p.cost_scale * cost, p.cost_cap));
  }

  function flatDistance(cost) {
    return cost === 0 ? Infinity : Math.max(0, -p.short_decay_km * Math.log(cost));
  }

  // The slider's steps are close together where rewards change fast.
  const BEND = 3;
  function distanceAt(step) { return p.farthest_km * Math.pow(step / 1000, BEND); }
  function stepAt(km) { return 1000 * Math.pow(km / p.farthest_km, 1 / BEND); }

  function kilometres(km) {
    if (km < 1) return Math.round(km * 1000) + " m";
    return km < 100 ? km.toFixed(1) + " km" : Math.round(km).toLocaleString("en") + " km";
  }

  window.geoReport.formulas = { gameReward, boardReward, flatDistance, distanceAt };
  const box = document.getElementById("explorer");
  const form = box.querySelector("form");
  const distance = document.getElementById("distance");
  const cost = document.getElementById("cost");
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  distance.value = stepAt(1000);
  distance.addEventListener("input", draw);
  cost.addEventListener("input", draw);
  draw();

  function draw() {
    const km = distanceAt(Number(distance.value));
    const paid = Number(cost.value);
    say(km, paid);
    for (const svg of box.querySelectorAll("svg.reward")) {
      const over = svg.dataset.over;
      const end = over === "distance" ? p.farthest_km : p.deepest_cost;
      const flat = over === "distance" ? Math.min(flatDistance(paid), p.farthest_km) : p.cost_cap;
      const left = Number(svg.dataset.left), right = Number(svg.dataset.right);
      const top = Number(svg.dataset.top), bottom = Number(svg.dataset.bottom);
      const x = (value) => left + (value / end) * (right - left);
      const y = (reward) => bottom - reward * (bottom - top);
      const here = over === "distance" ? km : paid;
      for (const [name, reward] of [["game", gameReward], ["board", boardReward]]) {
        const at = over === "distance" ? (value) => reward(value, paid) : (value) => reward(km, value);
        const points = [];
        for (let i = 0; i <= p.samples; i += 1) {
          const value = (end * i) / p.samples;
          points.push(x(value).toFixed(1) + " " + y(at(value)).toFixed(1));
        }
        svg.querySelector(".curve." + name).setAttribute("d", "M" + points.join("L"));
        const dot = svg.querySelector(".at." + name);
        dot.setAttribute("cx", x(here));
        dot.setAttribute("cy", y(at(here)));
      }
      upright(svg.querySelector(".here"), x(here));
      upright(svg.querySelector(".flat"), x(flat));
    }
  }

  function upright(line, x) {
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  }

  function say(km, paid) {
    const flat = flatDistance(paid);
    const far = flat > p.farthest_km;
    set("distance-said", kilometres(km));
    set("cost-said", paid.toFixed(3));
    set("game-said", gameReward(km, paid).toFixed(3));
    set("board-said", boardReward(km, paid).toFixed(3));
    set("flat-said", far ? "nowhere" : kilometres(flat));
    distance.setAttribute("aria-valuetext", kilometres(km));
    const beyond = km >= flat;
    set("flat-words", (beyond
      ? "This guess lies where the game is flat: ten thousand kilometres farther it would earn the same nothing."
      : far
        ? "Without a cost worth the name the game is flat nowhere on Earth."
        : "From " + kilometres(flat) + " on, every guess earns nothing in the game.")
      + (paid >= p.cost_cap
        ? " Under " + p.curve + " more calls cost nothing more: the share is capped at " + p.cost_cap.toFixed(2) + "."
        : ""));
  }

  function set(id, words) { document.getElementById(id).textContent = words; }
})();
