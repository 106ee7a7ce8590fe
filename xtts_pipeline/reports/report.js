
// The pages of xtts report: measures, selected clips, and lines that are read out.
const picks = [...document.querySelectorAll("[data-id]")], selected = new Set();

function showPicks() {
  for (const box of picks) {
    box.checked = selected.has(box.dataset.id);
    const card = box.closest(".card");
    if (!card) continue;
    const flags = card.dataset.flags.split(" ").filter((flag) => flag !== "selected");
    card.dataset.flags = [...flags, ...(box.checked ? ["selected"] : [])].join(" ");
  }
  const ids = [...selected].sort().map((id) => `${id}\n`).join("");
  get("save").href = `data:text/plain;charset=utf-8,${encodeURIComponent(ids)}`;
  document.querySelector(".selection").hidden = selected.size === 0;
  get("picked").textContent = `${selected.size} selected. Save the ids, then: xtts preprocess --exclude exclude.txt`;
}

function pick(ids, is_picked = true) {
  for (const id of ids) is_picked ? selected.add(id) : selected.delete(id);
  showPicks();
}

async function copyText(text) {
  // The clipboard is there on secure pages only.
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const area = document.body.appendChild(document.createElement("textarea"));
  area.value = text;
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  return copied;
}

if (get("save")) {
  document.addEventListener("change", (event) => {
    if (event.target.dataset.id !== undefined) pick([event.target.dataset.id], event.target.checked);
  });
  get("clear").addEventListener("click", () => pick([...selected], false));
  get("pick-shown").addEventListener("click", () => pick(shown().map((card) => card.querySelector("[data-id]").dataset.id)));
  get("copy").addEventListener("click", async () => {
    const copied = await copyText([...selected].sort().join("\n"));
    get("picked").textContent = copied ? `${selected.size} ids copied.` : "Not copied: use Save exclude.txt.";
  });
  get("repeats")?.addEventListener("click", () => pick(
    [...document.querySelectorAll("tr.repeat")].flatMap((row) => [...row.querySelectorAll("[data-id]")].slice(1)).map((box) => box.dataset.id)
  ));
  for (const button of document.querySelectorAll("[data-show]")) {
    button.addEventListener("click", () => {
      get("sort").value = get("filter").value = button.dataset.show;
      arrange();
      get("clips").scrollIntoView();
    });
  }
  showPicks();
}

for (const chart of document.querySelectorAll("[data-points]")) {
  const points = JSON.parse(chart.dataset.points), svg = chart.querySelector("svg"), note = chart.querySelector("figcaption span");
  const values = [...chart.querySelectorAll(".key b")], last = values.map((value) => value.textContent), said = note.textContent;
  const cross = svg.appendChild(svg.querySelector("line").cloneNode());
  cross.setAttribute("class", "cross");
  cross.style.display = "none";
  cross.setAttribute("y1", 12);
  cross.setAttribute("y2", svg.viewBox.baseVal.height - 30);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const place = points.low + (x - points.left) / (points.right - points.left) * (points.high - points.low);
    const nearest = (series) => series.reduce((a, b) => Math.abs(b[0] - place) < Math.abs(a[0] - place) ? b : a);
    const found = Object.entries(points.series).map(([name, series]) => [name, ...nearest(series)]);
    const at = points.left + (found[0][1] - points.low) / (points.high - points.low) * (points.right - points.left);
    cross.setAttribute("x1", at);
    cross.setAttribute("x2", at);
    cross.style.display = "inline";
    note.textContent = `${points.label} ${found[0][1].toLocaleString("en")}`;
    found.forEach(([, , value], number) => (values[number].textContent = value));
  });
  svg.addEventListener("pointerleave", () => {
    cross.style.display = "none";
    note.textContent = said;
    last.forEach((value, number) => (values[number].textContent = value));
  });
}
