/* The episode viewer: the page's list of steps, one at a time, by buttons, slider, strip or arrow keys. */
(function () {
  "use strict";
  markSection();
  const viewer = document.getElementById("viewer");
  if (!viewer) return;
  const groups = [...viewer.querySelectorAll(".arm")];
  const episodes = new Map(groups.map((group) => [group.dataset.arm, [...group.querySelectorAll(".episode")]]));
  const arm = choice("Arm", groups.map((group) => [group.dataset.arm, group.dataset.label]));
  const which = choice("Episode", []);
  const form = make("form", "pick");
  form.append(arm.parentElement, which.parentElement);
  form.addEventListener("submit", (event) => event.preventDefault());
  const bar = controls();
  const strip = make("div", "strip");
  strip.setAttribute("role", "group");
  strip.setAttribute("aria-label", "All steps of this episode");
  viewer.tabIndex = 0;
  viewer.setAttribute("role", "region");
  viewer.setAttribute("aria-label", "Episode viewer: arrow keys step through it");
  viewer.prepend(form);
  let current = null, steps = [], at = 0;
  let printing = false;

  arm.addEventListener("change", () => choose(arm.value, 0));
  which.addEventListener("change", () => choose(arm.value, Number(which.value)));
  viewer.addEventListener("keydown", onKey);
  document.addEventListener("keydown", (event) => {
    const idle = document.activeElement === document.body || document.activeElement === null;
    if (idle && inView()) onKey(event);
  });
  // On paper every episode stands whole.
  window.addEventListener("beforeprint", () => { printing = true; reveal(); });
  window.addEventListener("afterprint", () => { printing = false; go(at); });
  if (!fromAddress()) choose(groups[0].dataset.arm, 0);
  window.addEventListener("hashchange", fromAddress);

  function fromAddress() {
    const wanted = location.hash.startsWith("#episode-") && document.getElementById(location.hash.slice(1));
    if (!wanted) return false;
    choose(wanted.dataset.arm, episodes.get(wanted.dataset.arm).indexOf(wanted));
    wanted.scrollIntoView();
    return true;
  }

  function choose(key, index) {
    arm.value = key;
    const own = episodes.get(key);
    which.replaceChildren(...own.map((one, number) => new Option(one.dataset.name, String(number))));
    which.value = String(index);
    current = own[index];
    steps = [...current.querySelectorAll(".step")];
    for (const group of groups) {
      group.hidden = group.dataset.arm !== key;
      for (const one of group.querySelectorAll(".episode")) one.hidden = one !== current;
    }
    current.querySelector("header").after(bar.box);
    current.append(strip);
    bar.slider.max = String(steps.length - 1);
    strip.replaceChildren(...steps.map(thumbnail));
    go(0);
  }

  function go(next) {
    at = Math.max(0, Math.min(steps.length - 1, next));
    if (printing) return;
    for (const group of groups) {
      group.hidden = group.dataset.arm !== arm.value;
      for (const one of group.querySelectorAll(".episode")) one.hidden = one !== current;
    }
    steps.forEach((step, number) => { step.hidden = number !== at; });
    const picture = steps[at].querySelector("img");
    if (picture) picture.loading = "eager";
    bar.slider.value = String(at);
    bar.said.textContent = (at === 0 ? "Opening" : at === steps.length - 1 ? "The answer" : "Step " + at + " of " + (steps.length - 2));
    bar.slider.setAttribute("aria-valuetext", bar.said.textContent);
    bar.first.disabled = bar.back.disabled = at === 0;
    bar.last.disabled = bar.on.disabled = at === steps.length - 1;
    [...strip.children].forEach((button, number) => {
      if (number === at) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    const marked = strip.children[at];
    strip.scrollLeft = marked.offsetLeft - strip.offsetLeft - strip.clientWidth / 2 + marked.clientWidth / 2;
  }

  function reveal() {
    for (const hidden of viewer.querySelectorAll("[hidden]")) hidden.hidden = false;
    for (const picture of viewer.querySelectorAll("img")) picture.loading = "eager";
  }

  function onKey(event) {
    const control = event.target.closest("select, input, textarea, .scroll");
    if (control || event.altKey || event.ctrlKey || event.metaKey) return;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: steps.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    go(moves[event.key]);
  }

  function inView() {
    const frame = current.getBoundingClientRect();
    return frame.top < window.innerHeight * 0.6 && frame.bottom > window.innerHeight * 0.4;
  }

  function thumbnail(step, number) {
    const button = make("button", ""), said = make("span", ""), shown = step.querySelector("img");
    button.type = "button";
    said.textContent = number + " " + step.dataset.call;
    if (shown) {
      const small = make("img", "");
      small.src = shown.getAttribute("src");
      small.alt = "";
      small.loading = "lazy";
      button.append(small, said);
    } else {
      const none = make("span", "none");
      none.textContent = "–";
      button.append(none, said);
    }
    button.addEventListener("click", () => go(number));
    return button;
  }

  function controls() {
    const box = make("div", "bar-controls"), slider = make("input", ""), said = make("output", "");
    const first = button("«", "First step", () => go(0)), back = button("‹", "Step back", () => go(at - 1));
    const on = button("›", "Step on", () => go(at + 1)), last = button("»", "To the answer", () => go(steps.length - 1));
    slider.type = "range";
    slider.min = "0";
    slider.setAttribute("aria-label", "Step");
    slider.addEventListener("input", () => go(Number(slider.value)));
    said.setAttribute("aria-live", "polite");
    const keys = make("span", "note");
    keys.innerHTML = "<kbd>←</kbd> <kbd>→</kbd>";
    keys.setAttribute("aria-hidden", "true");
    box.append(first, back, on, last, slider, said, keys);
    return { box, slider, said, first, back, on, last };
  }

  function button(sign, words, run) {
    const made = make("button", "");
    made.type = "button";
    made.textContent = sign;
    made.setAttribute("aria-label", words);
    made.addEventListener("click", run);
    return made;
  }

  function choice(words, options) {
    const label = make("label", ""), select = make("select", "");
    label.append(words + " ", select);
    for (const [value, said] of options) select.append(new Option(said, value));
    return select;
  }

  function make(name, kind) {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    return made;
  }

  /* The section that is being read, in the navigation. */
  function markSection() {
    const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.getAttribute("href").slice(1), link]));
    if (!("IntersectionObserver" in window)) return;
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        links.get(entry.target.id).setAttribute("aria-current", "true");
      }
    }, { rootMargin: "-20% 0px -70% 0px" });
    for (const id of links.keys()) watch.observe(document.getElementById(id));
  }
})();
