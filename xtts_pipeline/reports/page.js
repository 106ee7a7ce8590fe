"use strict";
// One player for the page, so that only one sound plays at a time.
const player = new Audio();
const list = document.querySelector(".cards");
const cards = list ? [...list.children] : [];
const get = (id) => document.getElementById(id);
let playing = null, current = null, frame = 0;

function play(button, from = 0) {
  const again = playing === button && from === 0;
  stop();
  if (again) return;
  playing = button;
  button.setAttribute("aria-pressed", "true");
  choose(button.closest(".card"));
  player.src = button.dataset.src;
  player.currentTime = from;
  player.play().then(follow, (error) => {
    if (error.name === "AbortError") return;
    stop();
    report(`${button.dataset.src} cannot be played: ${error.message}`);
  });
}

function stop() {
  player.pause();
  cancelAnimationFrame(frame);
  if (playing) playing.setAttribute("aria-pressed", "false");
  document.querySelectorAll(".cursor").forEach((cursor) => cursor.remove());
  document.querySelectorAll(".lane .now").forEach((span) => span.classList.remove("now"));
  playing = null;
}

// Move the cursor in the pictures of the sound, and mark the word that is spoken.
function follow() {
  if (!playing) return;
  for (const plot of playing.closest(".card").querySelectorAll(`.plot[data-sound="${playing.dataset.sound}"]`)) {
    const area = plot.querySelector(".area");
    const cursor = area.querySelector(".cursor") ?? area.appendChild(Object.assign(document.createElement("div"), { className: "cursor" }));
    cursor.style.left = `${Math.min(100, 100 * player.currentTime / plot.dataset.seconds)}%`;
    for (const span of plot.querySelectorAll(".lane span")) {
      span.classList.toggle("now", span.dataset.begin <= player.currentTime && player.currentTime < span.dataset.end);
    }
  }
  frame = requestAnimationFrame(follow);
}

const shown = () => [...list.children].filter((card) => !card.hidden);

function choose(card) {
  if (!card) return;
  current?.classList.remove("current");
  current = card;
  card.classList.add("current");
}

function step(by) {
  const all = shown(), at = all.indexOf(current);
  const card = all[at < 0 ? 0 : Math.max(0, Math.min(all.length - 1, at + by))];
  if (!card) return;
  choose(card);
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

function report(text) {
  if (get("count")) get("count").textContent = text;
}

// Cards carry what they sort by in data-sort-KEY, larger first, and what they are filtered by in data-flags.
function arrange() {
  const key = get("sort").value, sign = get("reverse").getAttribute("aria-pressed") === "true" ? -1 : 1;
  const value = (card) => card.getAttribute(`data-sort-${key}`);
  const compare = (a, b) => (value(a) === null) - (value(b) === null) || sign * (value(b) - value(a)) || 0;
  list.append(...[...cards].sort(compare));
  const flag = get("filter").value, words = get("search").value.toLowerCase().split(/\s+/);
  for (const card of cards) {
    const text = card.querySelector("header").textContent.toLowerCase();
    card.hidden = (flag !== "" && !card.dataset.flags.split(" ").includes(flag)) || !words.every((word) => text.includes(word));
  }
  if (playing?.closest(".card").hidden) stop();
  report(`${shown().length} of ${cards.length} shown`);
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !list) return;
  const inField = event.target.closest("input, select, textarea"), key = event.key.toLowerCase();
  if (key === "escape") {
    stop();
    event.target.blur();
  } else if (inField) {
    return;
  } else if (key === "j" || key === "arrowdown") {
    step(1);
  } else if (key === "k" || key === "arrowup") {
    step(-1);
  } else if (key === " " && !event.target.closest("button, summary, a")) {
    if (playing) stop();
    else if (current) play(current.querySelector("[data-src]"));
  } else if (key === "/" && get("search")) {
    get("search").focus();
  } else if (key === "f" && get("filter")) {
    get("filter").selectedIndex = get("filter").selectedIndex ? 0 : 1;
    arrange();
  } else {
    const button = (current ?? shown()[0])?.querySelector(`[data-src][data-key="${CSS.escape(key)}"]`);
    if (!button) return;
    play(button);
  }
  event.preventDefault();
}

function click(event) {
  const button = event.target.closest("[data-src]"), area = event.target.closest(".plot .area");
  if (button) return play(button);
  if (event.target.closest(".card")) choose(event.target.closest(".card"));
  if (!area) return;
  const plot = area.closest(".plot"), box = area.getBoundingClientRect();
  const of = plot.closest(".card").querySelector(`[data-src][data-sound="${plot.dataset.sound}"]`);
  if (of) play(of, Math.max(0.001, (event.clientX - box.left) / box.width * plot.dataset.seconds));
}

player.addEventListener("ended", stop);
document.addEventListener("keydown", press);
document.addEventListener("click", click);
if (get("sort")) {
  for (const id of ["sort", "filter", "search"]) get(id).addEventListener("input", arrange);
  get("reverse").addEventListener("click", () => {
    const reversed = get("reverse").getAttribute("aria-pressed") !== "true";
    get("reverse").setAttribute("aria-pressed", reversed);
    arrange();
  });
  // A browser may fill in what the fields held before a reload.
  arrange();
}
