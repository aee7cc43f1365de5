// One photo in the grid: its picture, label, confidence and marks.

import { el, icon, imageUrl, picture, setText, swatch } from "./dom.js";
import { labelText, percent } from "./format.js";

// Marks in the order in which they are shown; the words are for those who do not see them.
const MARKS = [
  ["conflict", (item) => item.conflict, "answered differently by someone else"],
  ["unsaved", (item) => item.pending === "unsaved", "not saved yet"],
  ["saving", (item) => item.pending === "saving", "saving"],
  ["check", (item) => item.answer !== null, "answered"],
  ["audited", (item) => item.audited, "audited"],
  ["skip", (item) => item.skipped, "skipped"],
  ["changed", (item) => item.changed, "label changed by the last solve"],
  ["outlier", (item) => item.answer === null && item.status === "outlier", "outlier"],
  ["unsure", (item) => item.answer === null && item.status === "unsure", "unsure"],
  ["none", (item) => item.status === "unreadable", "unreadable"],
];

export function marksOf(item) {
  return MARKS.filter(([, applies]) => applies(item)).map(([name, , words]) => ({ name, words }));
}

export function describe(item, none) {
  const parts = [item.name, labelText(item.label, none)];
  if (item.confidence !== null && item.answer === null) parts.push(percent(item.confidence));
  if (item.looks_like) parts.push(`looks like ${item.looks_like}`);
  return [...parts, ...marksOf(item).map((mark) => mark.words)].join(", ");
}

export function createCell() {
  const parts = {
    image: picture(null),
    note: el("span", { class: "thumb-note" }),
    marks: el("span", { class: "marks", "aria-hidden": "true" }),
    label: el("span", { class: "cell-label" }),
    swatch: swatch("transparent"),
    confidence: el("span", { class: "cell-confidence" }),
    name: el("span", { class: "cell-name" }),
  };
  const cell = el(
    "div",
    { class: "cell", role: "gridcell", tabindex: "-1" },
    el("span", { class: "thumb" }, parts.image, parts.note, parts.marks),
    el(
      "span",
      { class: "caption", "aria-hidden": "true" },
      el("span", { class: "cell-line" }, parts.swatch, parts.label, parts.confidence),
      parts.name,
    ),
  );
  cell.parts = parts;
  return cell;
}

// Shows an item, or an empty frame while it is not here.
export function fillCell(cell, id, item, { store, chosen, focused, several, size, index, columns }) {
  const { parts } = cell;
  if (cell.itemId !== id) {
    cell.itemId = id;
    parts.image.removeAttribute("src");
    parts.image.classList.remove("loaded", "broken");
  }
  cell.hidden = id === null;
  if (id === null) return;
  cell.dataset.index = index;
  cell.wantedImage = imageUrl(id, size);
  cell.setAttribute("aria-colindex", (index % columns) + 1);
  cell.setAttribute("aria-selected", String(chosen));
  cell.classList.toggle("chosen", several && chosen);
  cell.tabIndex = focused ? 0 : -1;
  cell.classList.toggle("empty", !item);
  if (!item) {
    cell.setAttribute("aria-label", "loading");
    return;
  }
  showItem(cell, item, store);
}

function showItem(cell, item, store) {
  const { parts } = cell;
  const { none } = store.state;
  cell.setAttribute("aria-label", describe(item, none));
  cell.classList.toggle("answered", item.answer !== null);
  setText(parts.label, item.looks_like ? `${item.label} → ${item.looks_like}?` : labelText(item.label, none));
  parts.label.classList.toggle("quiet", item.label === "" || item.label === none);
  parts.swatch.style.background = store.colourOf(item.label);
  setText(parts.confidence, item.answer === null ? percent(item.confidence) : "");
  setText(parts.name, item.name);
  setText(parts.note, item.status === "unreadable" ? item.reason || "cannot be opened" : "");
  const marks = marksOf(item);
  const shown = marks.map((mark) => mark.name).join(" ");
  if (parts.marks.dataset.shown !== shown) {
    parts.marks.dataset.shown = shown;
    parts.marks.replaceChildren(
      ...marks.map((mark) => el("span", { class: `mark mark-${mark.name}`, title: mark.words }, icon(mark.name))),
    );
  }
}

export function loadImage(cell) {
  const { image } = cell.parts;
  if (cell.wantedImage && image.getAttribute("src") !== cell.wantedImage) image.src = cell.wantedImage;
}
