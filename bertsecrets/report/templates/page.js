"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const config = JSON.parse(document.getElementById("config").textContent);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Charts are rendered when they scroll into view, and all of them before printing.
function draw(place) {
  place.drawn ??= embed(place);
  return place.drawn;
}
async function embed(place) {
  const drawn = await vegaEmbed(place, await specOf(place), { mode: "vega-lite", renderer: "svg", actions: false, logLevel: 1, config, tooltip: { theme: "custom" } });
  place.querySelector("svg").setAttribute("aria-hidden", "true"); // the container has a label
  if (place.dataset.view === "heads") drawn.view.addEventListener("click", (_, item) => item?.datum?.layer && choose(item.datum.layer - 1, item.datum.head - 1));
  return drawn;
}
function specOf(place) {
  if (place.dataset.view) return views[place.dataset.view](Math.min(480, place.clientWidth || 480) - 100); // minus the labels
  const known = charts[place.dataset.chart];
  return known.strip
    ? { ...charts.strip, width: Math.max(160, Math.min(460, (place.clientWidth || 600) - 140)), data: { name: "rows", values: known.strip } }
    : known;
}
const seen = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => { seen.unobserve(entry.target); draw(entry.target); }),
  { rootMargin: "600px" },
);
all(".chart").forEach((place) => seen.observe(place));
// The rest is rendered when the page is idle, so that a full-page screenshot has no empty boxes.
addEventListener("load", async () => {
  for (const place of all(".chart")) {
    await new Promise((ready) => (self.requestIdleCallback ?? setTimeout)(ready));
    if (place.checkVisibility()) await draw(place);
  }
});

// Clicking a cell opens its claim's card.
function reveal() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (!target || target.tagName !== "DETAILS") return;
  target.open = true;
  target.querySelector("summary").focus({ preventScroll: true });
  target.scrollIntoView({ block: "start" });
}
addEventListener("hashchange", reveal);
all("a.cell[href]").forEach((cell) => cell.addEventListener("click", () => setTimeout(reveal)));
reveal();

// Filters: by task, by model, by section of the paper, by outcome.
const form = document.querySelector(".filters");
function filter() {
  const wanted = Object.fromEntries(new FormData(form));
  const is = (part, ...names) => names.every((name) => !wanted[name] || part.dataset[name] === wanted[name]);
  const fits = (part) => is(part, "task", "model", "outcome");
  all("tbody[data-family], .family").forEach((part) => { part.hidden = Boolean(wanted.family) && part.dataset.family !== wanted.family; });
  all("th[data-task]").forEach((part) => { part.hidden = !is(part, "task", "model"); });
  all(".replica-by-task").forEach((part) => { part.hidden = !is(part, "task"); });
  all(".matrix td").forEach((cell) => {
    cell.hidden = !is(cell, "task", "model");
    cell.classList.toggle("other", !fits(cell));
  });
  all(".matrix .claim").forEach((row) => { row.hidden = !all("td[data-outcome]", row).some(fits); });
  all(".matrix tbody").forEach((body) => { body.hidden ||= !all(".claim:not([hidden])", body).length; });
  all(".card").forEach((card) => { card.hidden = !fits(card); });
  all(".family").forEach((part) => { part.hidden ||= !all(".card:not([hidden])", part).length; });
  all(".paper:has(.replica-by-task)").forEach((part) => { part.hidden = !all(".replica-by-task:not([hidden])", part).length; });
  const shown = all(".card").filter((card) => !card.hidden && !card.closest(".family").hidden).length;
  form.querySelector("output").textContent = `${shown} of ${all(".card").length} shown`;
}
form.addEventListener("input", filter);
form.addEventListener("reset", () => setTimeout(filter));
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;
filter();

// The attention viewer: one example, layer and head at a time.
const checkpoints = JSON.parse(document.getElementById("maps")?.textContent ?? "[]");
const chooser = document.querySelector(".chooser");
const sides = { before: "pretrained", after: "fine-tuned" };
function chosen() {
  const [place, row] = chooser.elements.example.value.split(" ").map(Number);
  const of = checkpoints[place];
  return { of, example: of.rows[row], layer: Number(chooser.elements.layer.value), head: Number(chooser.elements.head.value) };
}
// All maps of both models, one byte per weight: the square root of the weight in 127ths or, for the second model, its difference from the first.
async function bytes(example) {
  const zipped = Uint8Array.from(atob(example.maps), (character) => character.charCodeAt(0));
  const whole = new Blob([zipped]).stream().pipeThrough(new DecompressionStream("gzip"));
  const steps = new Uint8Array(await new Response(whole).arrayBuffer()), half = steps.length / 2;
  for (let i = half; i < steps.length; i++) steps[i] += steps[i - half];
  return steps;
}
async function mapOf(side, { of, example, layer, head }) {
  example.bytes ??= bytes(example);
  const size = example.words.length ** 2, start = ((Object.keys(sides).indexOf(side) * of.layers + layer) * of.heads + head) * size;
  return [...(await example.bytes).slice(start, start + size)].map((step) => (step / 127) ** 2);
}
async function drawMap(side, room) {
  const now = chosen(), { words } = now.example, n = words.length;
  const [own, ...both] = await Promise.all([side, ...Object.keys(sides)].map((one) => mapOf(one, now)));
  const name = (i) => `${String(i).padStart(2, "0")} ${words[i]}`;
  const spec = structuredClone(charts.map);
  spec.width = spec.height = { step: Math.max(8, Math.min(24, Math.floor(room / n))) };
  spec.encoding.color.scale.domain = [0, Math.max(...both.flat())];
  for (const axis of ["x", "y"]) spec.encoding[axis].axis.labelFontSize = Math.min(11, spec.width.step);
  return { ...spec, data: { name: "weights", values: own.map((weight, k) => ({ from: name(Math.floor(k / n)), to: name(k % n), source: words[Math.floor(k / n)], target: words[k % n], weight })) } };
}
function targets() {
  const { of, example, layer, head } = chosen();
  return Object.entries(sides).flatMap(([key, side]) => of.kinds.map((kind, i) => ({ side, kind, mean: of.mean[key][layer][head][i], here: example.here[key][layer][head][i] })));
}
const views = {
  before: (room) => drawMap("before", room),
  after: (room) => drawMap("after", room),
  targets: () => ({ ...charts.targets, data: { name: "targets", values: targets() } }),
  heads: () => {
    const { of, layer, head } = chosen();
    const values = of.cosine.flatMap((row, i) => row.map((value, j) => ({ layer: i + 1, head: j + 1, value, chosen: i === layer && j === head })));
    return { ...charts.heads, data: { name: "heads", values } };
  },
};
function fill(table, header, rows) {
  table.replaceChildren();
  const line = (cells, part) => cells.reduce((row, cell, i) => {
    const made = document.createElement(part.tagName === "THEAD" || i === 0 ? "th" : "td");
    if (made.tagName === "TH") made.scope = part.tagName === "THEAD" ? "col" : "row";
    made.textContent = typeof cell === "number" ? Number(cell.toFixed(4)) : cell;
    row.append(made);
    return row;
  }, part.insertRow());
  line(header, table.createTHead());
  const body = table.createTBody();
  rows.forEach((row) => line(row, body));
}
let asked = 0;
async function describe() {
  const now = chosen(), { of, example, layer, head } = now, n = example.words.length, mine = ++asked;
  const maps = await Promise.all(Object.keys(sides).map((side) => mapOf(side, now)));
  if (mine !== asked) return; // the selection has changed in the meantime
  const where = `layer ${layer + 1}, head ${head + 1}`, inputs = `${of.inputs} inputs`;
  const section = chooser.closest("section");
  const captions = {
    before: `Pretrained: ${where}`,
    after: `Fine-tuned: ${where}`,
    targets: `Where its attention goes: bars show the mean over ${inputs}, ticks show this example`,
    heads: `All heads: similarity of maps before and after fine-tuning, mean over ${inputs}`,
  };
  const figures = Object.fromEntries(all(".viewer .chart").map((place) => [place.dataset.view, place.closest("figure")]));
  for (const [view, caption] of Object.entries(captions)) {
    figures[view].querySelector("figcaption").textContent = caption;
    figures[view].querySelector(".chart").setAttribute("aria-label", caption);
  }
  fill(figures.targets.querySelector("table"), ["to", "model", "mean", "this example"], targets().map((one) => [one.kind, one.side, one.mean, one.here]));
  fill(figures.heads.querySelector("table"), ["layer", ...of.cosine[0].map((_, j) => `head ${j + 1}`)], of.cosine.map((row, i) => [String(i + 1), ...row]));
  Object.keys(sides).forEach((side, place) => {
    const rows = example.words.map((word, i) => [word, ...maps[place].slice(i * n, (i + 1) * n).map((weight) => Number(weight.toPrecision(2)))]);
    fill(figures[side].querySelector("table"), ["from, to", ...example.words], rows);
  });
  section.querySelector(".sentence").textContent = `“${example.text}” (${example.label})`;
  section.querySelector(".found").textContent = `${where[0].toUpperCase()}${where.slice(1)} of ${of.who}: over ${inputs}, its maps before and after fine-tuning have a mean similarity of ${Number(of.cosine[layer][head].toFixed(3))}.`;
}
function show() {
  all(".viewer .chart").filter((place) => place.drawn).forEach((place) => {
    place.drawn = place.drawn.then((old) => { old.finalize(); return embed(place); });
  });
  describe();
}
function choose(layer, head) {
  chooser.elements.layer.value = layer;
  chooser.elements.head.value = head;
  show();
}
function offer() { // offers this model's layers and heads, and selects the head that fine-tuning changed most
  const { of } = chosen();
  const options = (count) => Array.from({ length: count }, (_, i) => new Option(i + 1, i));
  chooser.elements.layer.replaceChildren(...options(of.layers));
  chooser.elements.head.replaceChildren(...options(of.heads));
  const least = of.cosine.flat().reduce((best, value, i, values) => (value < values[best] ? i : best), 0);
  chooser.elements.layer.value = Math.floor(least / of.heads);
  chooser.elements.head.value = least % of.heads;
}
if (chooser) {
  let of = null;
  chooser.addEventListener("input", () => {
    if (chosen().of !== of) offer();
    of = chosen().of;
    show();
  });
  chooser.addEventListener("submit", (event) => event.preventDefault());
  offer();
  of = chosen().of;
  chooser.hidden = false;
  describe();
}

// Light and dark mode.
const theme = document.getElementById("theme");
const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Change to ${theme.textContent.toLowerCase()} colours`); };
theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; label(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
theme.hidden = false;
label();

// Downloads of a figure.
all("[data-save]").forEach((button) => button.addEventListener("click", async () => {
  const figure = button.closest("figure");
  const csv = () => all("tr", figure).map((row) => [...row.cells].map((cell) => `"${cell.textContent.trim().replaceAll('"', '""')}"`).join(",")).join("\n");
  const kind = button.dataset.save;
  const text = kind === "csv" ? csv() : await (await draw(figure.querySelector(".chart"))).view.toSVG();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind === "csv" ? "text/csv" : "image/svg+xml" }));
  link.download = `${figure.querySelector("figcaption").textContent.replace(/[^A-Za-z0-9]+/g, "-").slice(0, 60)}.${kind}`;
  link.click();
}));

// Printing opens collapsed sections.
let opened = [];
addEventListener("beforeprint", () => {
  opened = all("details:not([open])").filter((part) => !part.matches(".numbers"));
  opened.forEach((part) => { part.open = true; });
  all(".chart").forEach(draw);
});
addEventListener("afterprint", () => { opened.forEach((part) => { part.open = false; }); });
