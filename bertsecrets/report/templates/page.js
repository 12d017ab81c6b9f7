"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const config = JSON.parse(document.getElementById("config").textContent);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Charts are drawn when they come into view, all of them before printing.
function draw(place) {
  if (place.drawn) return place.drawn;
  const known = charts[place.dataset.chart];
  const spec = known.strip
    ? { ...charts.strip, width: Math.max(160, Math.min(460, (place.clientWidth || 600) - 140)), data: { name: "rows", values: known.strip } }
    : known;
  place.drawn = vegaEmbed(place, spec, { mode: "vega-lite", renderer: "svg", actions: false, logLevel: 1, config, tooltip: { theme: "custom" } });
  place.drawn.then(() => place.querySelector("svg").setAttribute("aria-hidden", "true")); // the place says what it shows
  return place.drawn;
}
const seen = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => { seen.unobserve(entry.target); draw(entry.target); }),
  { rootMargin: "600px" },
);
all(".chart").forEach((place) => seen.observe(place));

// A cell opens its claim's card.
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

// Filters: by task, by section of the paper, by outcome.
const form = document.querySelector(".filters");
function filter() {
  const wanted = Object.fromEntries(new FormData(form));
  const fits = (part) => ["task", "outcome"].every((name) => !wanted[name] || part.dataset[name] === wanted[name]);
  all("tbody[data-family], .family").forEach((part) => { part.hidden = Boolean(wanted.family) && part.dataset.family !== wanted.family; });
  all("th[data-task], .beside").forEach((part) => { part.hidden = Boolean(wanted.task) && part.dataset.task !== wanted.task; });
  all(".matrix td").forEach((cell) => {
    cell.hidden = Boolean(wanted.task) && cell.dataset.task !== wanted.task;
    cell.classList.toggle("other", !fits(cell));
  });
  all(".matrix .claim").forEach((row) => { row.hidden = !all("td[data-outcome]", row).some(fits); });
  all(".matrix tbody").forEach((body) => { body.hidden ||= !all(".claim:not([hidden])", body).length; });
  all(".card").forEach((card) => { card.hidden = !fits(card); });
  all(".family").forEach((part) => { part.hidden ||= !all(".card:not([hidden])", part).length; });
  all(".paper:has(.beside)").forEach((part) => { part.hidden = !all(".beside:not([hidden])", part).length; });
  const shown = all(".card").filter((card) => !card.hidden && !card.closest(".family").hidden).length;
  form.querySelector("output").textContent = `${shown} of ${all(".card").length} shown`;
}
form.addEventListener("input", filter);
form.addEventListener("reset", () => setTimeout(filter));
form.addEventListener("submit", (event) => event.preventDefault());
form.hidden = false;
filter();

// Light and dark.
const theme = document.getElementById("theme");
const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Change to ${theme.textContent.toLowerCase()} colours`); };
theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; label(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
theme.hidden = false;
label();

// Files of a figure.
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

// Print opens what is folded.
let opened = [];
addEventListener("beforeprint", () => {
  opened = all("details:not([open])").filter((part) => !part.matches(".numbers"));
  opened.forEach((part) => { part.open = true; });
  all(".chart").forEach(draw);
});
addEventListener("afterprint", () => { opened.forEach((part) => { part.open = false; }); });
