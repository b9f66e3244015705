/* The world map: guesses of an arm, lines to the truth, filters, zoom. Everything comes with the page's data. */
(function () {
  "use strict";
  const data = window.geoReport.map;
  const world = document.getElementById("world");
  const [width, height] = data.size;
  const NAMES = ["near", "mid", "wide-off", "far"];
  const REGIONS = {
    "World": null,
    "Europe": [72, -25, 34, 45], "Africa": [38, -20, -36, 55], "Asia": [60, 40, -11, 150],
    "North America": [72, -170, 7, -50], "South America": [14, -85, -57, -32], "Oceania": [5, 110, -50, 180],
  };
  const pick = (id) => document.getElementById(id);
  const arm = pick("map-arm"), task = pick("map-task"), region = pick("map-region"), lines = pick("map-lines");
  const shownBands = [true, true, true, true];
  let view = [0, 0, width, height];
  let visible = [];

  function project(lat, lon) {
    const q = data.projection, a = q.a;
    const theta = Math.asin(q.m * Math.sin((lat * Math.PI) / 180));
    const t2 = theta * theta, t6 = t2 * t2 * t2;
    const slope = a[0] + 3 * a[1] * t2 + t6 * (7 * a[2] + 9 * a[3] * t2);
    const x = (((lon * Math.PI) / 180) * Math.cos(theta)) / (q.m * slope);
    const y = theta * (a[0] + a[1] * t2 + t6 * (a[2] + a[3] * t2));
    return [q.middle + x * q.scale, q.top - y * q.scale];
  }

  function band(km) {
    return data.bands.findIndex(([bound]) => bound === null || km < bound);
  }

  // The shortest way over the sphere, cut where it leaves the map at 180 degrees.
  function way(lat1, lon1, lat2, lon2) {
    const rad = Math.PI / 180;
    const unit = (lat, lon) => [
      Math.cos(lat * rad) * Math.cos(lon * rad), Math.cos(lat * rad) * Math.sin(lon * rad), Math.sin(lat * rad)];
    const a = unit(lat1, lon1), b = unit(lat2, lon2);
    const angle = Math.acos(Math.max(-1, Math.min(1, a[0] * b[0] + a[1] * b[1] + a[2] * b[2])));
    const steps = Math.max(1, Math.ceil(angle / (4 * rad)));
    let path = "", before = null;
    for (let i = 0; i <= steps; i += 1) {
      const part = i / steps;
      const f = angle < 1e-6 ? 1 - part : Math.sin((1 - part) * angle) / Math.sin(angle);
      const g = angle < 1e-6 ? part : Math.sin(part * angle) / Math.sin(angle);
      const [x, y, z] = [0, 1, 2].map((k) => f * a[k] + g * b[k]);
      const lon = Math.atan2(y, x) / rad;
      const [px, py] = project(Math.atan2(z, Math.hypot(x, y)) / rad, lon);
      path += (before === null || Math.abs(lon - before) > 180 ? "M" : "L") + px.toFixed(1) + " " + py.toFixed(1);
      before = lon;
    }
    return path;
  }

  window.geoReport.project = project;
  const atlas = pick("atlas");
  atlas.querySelector("form").hidden = false;
  atlas.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  for (const one of data.arms) arm.append(new Option(one.label, one.key));
  if (data.arms.length > 1) arm.append(new Option("All arms", "*"));
  task.append(new Option("All tasks", "*"));
  data.tasks.forEach((one, index) => task.append(new Option(index + " · " + one[2], String(index))));
  for (const name of Object.keys(REGIONS)) region.append(new Option(name, name));
  const marks = { lines: layer("lines"), guesses: layer("guesses") };
  const dots = [...world.querySelectorAll(".task")];
  dots.forEach((dot, index) => dot.addEventListener("click", () => { task.value = String(index); draw(); }));
  const buttons = data.bands.map(bandButton);
  for (const control of [arm, task, lines]) control.addEventListener("change", draw);
  region.addEventListener("change", () => show(box(REGIONS[region.value])));
  pick("map-in").addEventListener("click", () => zoom(0.6));
  pick("map-out").addEventListener("click", () => zoom(1 / 0.6));
  pick("map-whole").addEventListener("click", () => { region.value = "World"; show([0, 0, width, height]); });
  pointer();
  draw();

  function layer(name) {
    const group = world.querySelector("g." + name);
    return NAMES.map((_, index) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("class", "band" + index);
      group.append(path);
      return path;
    });
  }

  function bandButton([bound, words], index) {
    const item = document.createElement("li"), button = document.createElement("button");
    const dot = document.createElement("i"), said = document.createElement("span");
    dot.className = NAMES[index];
    said.textContent = words + (bound === null ? "" : " (under " + bound.toLocaleString("en") + " km)");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(dot, said);
    button.addEventListener("click", () => {
      shownBands[index] = !shownBands[index];
      button.setAttribute("aria-pressed", String(shownBands[index]));
      draw();
    });
    item.append(button);
    pick("map-bands").append(item);
    return button;
  }

  function draw() {
    const arms = data.arms.filter((one) => arm.value === "*" || one.key === arm.value);
    const only = task.value === "*" ? null : Number(task.value);
    const paths = { lines: ["", "", "", ""], guesses: ["", "", "", ""] };
    visible = [];
    let without = 0;
    for (const one of arms) {
      for (const [at, sample, lat, lon, km, reward] of one.guesses) {
        if (only !== null && at !== only) continue;
        if (lat === null) { without += 1; continue; }
        const which = band(km);
        if (!shownBands[which]) continue;
        const [x, y] = project(lat, lon);
        visible.push({ x, y, arm: one.label, task: at, sample, lat, lon, km, reward });
        paths.guesses[which] += "M" + x.toFixed(1) + " " + y.toFixed(1) + "h0";
        if (lines.checked) paths.lines[which] += way(lat, lon, data.tasks[at][0], data.tasks[at][1]);
      }
    }
    for (const kind of ["lines", "guesses"]) {
      marks[kind].forEach((path, index) => path.setAttribute("d", paths[kind][index]));
    }
    dots.forEach((dot, index) => dot.classList.toggle("off", only !== null && index !== only));
    const count = visible.length.toLocaleString("en");
    pick("map-said").textContent = count + (visible.length === 1 ? " guess" : " guesses") + " shown"
      + (without ? ", " + without.toLocaleString("en") + " episodes without one" : "") + "."
      + (only === null ? " Choose a task, or click a ringed dot, to see its guesses in a table." : "");
    list(only);
  }

  function list(only) {
    const place = pick("map-table");
    place.replaceChildren();
    if (only === null) return;
    const wrap = document.createElement("div"), table = document.createElement("table");
    wrap.className = "scroll";
    wrap.tabIndex = 0;
    wrap.setAttribute("role", "region");
    const words = "Guesses at task " + only + ", " + data.tasks[only][2];
    wrap.setAttribute("aria-label", words);
    table.createCaption().textContent = words;
    const head = table.createTHead().insertRow();
    for (const name of ["arm", "pass", "distance, km", "reward", "latitude", "longitude"]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const one of [...visible].sort((a, b) => a.km - b.km)) {
      const row = body.insertRow(), first = document.createElement("th");
      first.scope = "row";
      first.textContent = one.arm;
      row.append(first);
      for (const said of [one.sample + 1, one.km.toFixed(1), one.reward.toFixed(3), one.lat.toFixed(2), one.lon.toFixed(2)]) {
        row.insertCell().textContent = String(said).replace("-", "−");
      }
    }
    wrap.append(table);
    place.append(wrap);
  }

  function box(bounds) {
    if (!bounds) return [0, 0, width, height];
    const [north, west, south, east] = bounds;
    const corners = [[north, west], [north, east], [south, west], [south, east], [0.5 * (north + south), west]];
    const points = corners.map(([lat, lon]) => project(lat, lon));
    const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
    const wide = Math.max(...xs) - Math.min(...xs), high = Math.max(...ys) - Math.min(...ys);
    const w = Math.max(wide, (high * width) / height), h = (w * height) / width;
    return [(Math.min(...xs) + Math.max(...xs) - w) / 2, (Math.min(...ys) + Math.max(...ys) - h) / 2, w, h];
  }

  function zoom(by) {
    const w = Math.max(width / 24, Math.min(width, view[2] * by)), h = (w * height) / width;
    show([view[0] + (view[2] - w) / 2, view[1] + (view[3] - h) / 2, w, h]);
  }

  function show(next) {
    const w = Math.min(next[2], width), h = Math.min(next[3], height);
    view = [Math.max(0, Math.min(width - w, next[0])), Math.max(0, Math.min(height - h, next[1])), w, h];
    world.setAttribute("viewBox", view.map((value) => value.toFixed(2)).join(" "));
    world.classList.toggle("zoomed", w < width - 1);
    const radius = (3.4 * Math.sqrt(w / width) * Math.sqrt(w / width)).toFixed(3);
    dots.forEach((dot) => dot.setAttribute("r", radius));
    pick("map-out").disabled = w > width - 1;
  }

  function pointer() {
    const tip = pick("map-tip");
    let held = null;
    show(view);
    world.addEventListener("pointerdown", (event) => {
      if (!world.classList.contains("zoomed") || event.target.closest(".task")) return;
      held = [event.clientX, event.clientY, view[0], view[1]];
      world.setPointerCapture(event.pointerId);
    });
    world.addEventListener("pointerup", () => { held = null; });
    world.addEventListener("pointerleave", () => { tip.hidden = true; });
    world.addEventListener("pointermove", (event) => {
      const frame = world.getBoundingClientRect(), scale = view[2] / frame.width;
      if (held) {
        show([held[2] - (event.clientX - held[0]) * scale, held[3] - (event.clientY - held[1]) * scale, view[2], view[3]]);
        return;
      }
      const x = view[0] + (event.clientX - frame.left) * scale, y = view[1] + (event.clientY - frame.top) * scale;
      let best = null, least = 9 * scale;
      for (const one of visible) {
        const away = Math.hypot(one.x - x, one.y - y);
        if (away < least) { least = away; best = one; }
      }
      tip.hidden = best === null;
      if (best === null) return;
      tip.textContent = best.arm + ", task " + best.task + " (" + data.tasks[best.task][2] + "), pass " + (best.sample + 1)
        + ": " + best.km.toLocaleString("en", { maximumFractionDigits: 0 }) + " km off, reward " + best.reward.toFixed(3);
      const host = tip.parentElement.getBoundingClientRect();
      const left = event.clientX - host.left, room = host.width - 250;
      tip.style.left = Math.max(0, Math.min(left + 14, room)) + "px";
      tip.style.top = event.clientY - host.top + 16 + "px";
    });
  }
})();
