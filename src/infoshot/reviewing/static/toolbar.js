// Above the grid: what is shown, search, sort, filters, and the size of the pictures.

import { button, el, icon, iconButton, picture, setText } from "./dom.js";
import { count } from "./format.js";
import { FRESH } from "./view.js";
import { VIEWS } from "./sidebar.js";

const SORTS = [
  ["default", "Default order"], ["confidence", "Confidence"], ["margin", "Margin"],
  ["outlier", "Outlier score"], ["name", "File name"], ["similar", "Similarity"],
];
const STATUSES = [
  ["", "Any status"], ["unanswered", "Unanswered"], ["answered", "Answered"], ["labelled", "Labelled"],
  ["unsure", "Unsure"], ["outlier", "Outlier"], ["skipped", "Skipped"],
  ["rejected", "None of the classes"], ["unreadable", "Unreadable"],
];
const TYPING_MS = 250;
const SIZES = { min: 72, max: 400, step: 4 };

export class Toolbar {
  constructor(app, root) {
    this.app = app;
    this.root = root;
    this.title = el("h2", { id: "view-title", tabindex: "-1" });
    this.total = el("span", { class: "view-count" });
    this.#createFilters();
    this.toggle = button("Filter", {
      iconName: "filter", kind: "quiet filter-toggle", "aria-expanded": "false", "aria-controls": "filters",
      onclick: () => this.#toggleFilters(),
    });
    this.selectToggle = button("Select", {
      iconName: "select", kind: "quiet select-toggle", "aria-pressed": "false",
      onclick: () => this.setSelectMode(!app.grid.selectMode),
    });
    this.pinChip = el("span", { class: "chip pin-chip", hidden: true });
    root.append(
      el("div", { class: "view-head" }, this.title, this.total, this.pinChip),
      this.searchBox,
      this.selectToggle,
      this.toggle,
      this.sizeBox,
      this.filters,
    );
    app.view.addEventListener("open", () => this.draw());
    app.view.addEventListener("ids", () => this.draw());
    app.view.addEventListener("reordered", () => this.draw());
    app.store.addEventListener("state", () => this.draw());
    app.grid.addEventListener("long-press", () => this.setSelectMode(true));
  }

  #createFilters() {
    const { app } = this;
    this.search = el("input", {
      type: "search", placeholder: "File name", "aria-label": "Search by file name",
      oninput: () => this.#changeSoon({ q: this.search.value }),
    });
    this.searchBox = el("label", { class: "search" }, icon("search"), this.search);
    this.sort = select("Sort by", SORTS, (value) => app.view.change({ sort: value, pin: null }));
    this.order = iconButton("Reverse the order", "down", () => {
      app.view.change({ order: app.view.query.order === "asc" ? "desc" : "asc" });
    });
    this.classes = select("Class", [["", "Any class"]], (value) => app.view.change({ class: value }));
    this.status = select("Status", STATUSES, (value) => app.view.change({ status: value }));
    this.low = this.#percentInput("Confidence from, in percent", "low");
    this.high = this.#percentInput("Confidence to, in percent", "high");
    this.reset = button("Clear filters", { kind: "plain", onclick: () => app.openView(app.view.name, { class: app.view.name === "class" ? app.view.query.class : "" }) });
    this.filters = el(
      "div",
      { class: "filters", id: "filters", role: "group", "aria-label": "Sort and filter" },
      el("span", { class: "field" }, this.sort, this.order),
      this.classes,
      this.status,
      el("span", { class: "field range-field" }, el("span", { text: "Confidence" }), this.low, el("span", { text: "to" }), this.high, el("span", { text: "%" })),
      this.reset,
    );
    this.size = el("input", {
      type: "range", ...SIZES, value: app.grid.size, "aria-label": "Size of the pictures",
      oninput: () => this.#resize(Number(this.size.value)),
    });
    this.sizeBox = el("label", { class: "size-box", title: "Size of the pictures" }, el("span", { class: "size-small", "aria-hidden": "true" }), this.size, el("span", { class: "size-large", "aria-hidden": "true" }));
  }

  get chosenSize() {
    return Number(this.size.value);
  }

  #percentInput(label, name) {
    const limit = name === "low" ? 0 : 100;
    return el("input", {
      type: "number", min: 0, max: 100, step: 1, value: limit, inputmode: "numeric", "aria-label": label,
      onchange: (event) => {
        const value = event.target.value === "" ? limit : Number(event.target.value);
        this.app.view.change({ [name]: Math.max(0, Math.min(100, value)) / 100 });
      },
    });
  }

  #resize(size) {
    localStorage.setItem("infoshot-size", size);
    this.app.grid.setSize(size);
  }

  #changeSoon(change) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.app.view.change(change), TYPING_MS);
  }

  #toggleFilters() {
    const open = this.root.classList.toggle("filters-open");
    this.toggle.setAttribute("aria-expanded", String(open));
  }

  // On a touch screen: a tap chooses one more photo.
  setSelectMode(on) {
    this.app.grid.selectMode = on;
    this.selectToggle.setAttribute("aria-pressed", String(on));
    if (!on) this.app.grid.clearSelection();
  }

  draw() {
    const { view, store } = this.app;
    const { query } = view;
    const label = VIEWS.find(([name]) => name === query.view)?.[1] ?? query.view;
    setText(this.title, query.view === "class" ? query.class || label : label);
    const isList = query.view !== "groups";
    setText(this.total, isList ? count(view.ids.length) : "");
    this.#drawClasses();
    this.sort.value = query.sort;
    this.sort.lastChild.hidden = query.pin === null; // needs a pinned photo
    this.status.value = query.status;
    this.classes.value = query.class;
    this.classes.hidden = query.view === "class";
    setValue(this.low, Math.round(100 * query.low));
    setValue(this.high, Math.round(100 * query.high));
    setValue(this.search, query.q);
    this.order.classList.toggle("reversed", query.order === "desc");
    this.order.setAttribute("aria-pressed", String(query.order === "desc"));
    this.reset.hidden = !view.isFiltered && query.sort === FRESH.sort && query.order === FRESH.order;
    this.toggle.classList.toggle("active", view.isFiltered);
    this.#drawPin(store.get(query.pin));
  }

  #drawClasses() {
    const { classNames, state } = this.app.store;
    const names = [["", "Any class"], ...classNames.map((name) => [name, name]), [state.none, "None of the classes"]];
    if (this.drawnNames === String(names)) return;
    this.drawnNames = String(names);
    this.classes.replaceChildren(...names.map(option));
  }

  #drawPin(item) {
    const { pin } = this.app.view.query;
    this.pinChip.hidden = pin === null;
    if (pin === null || this.drawnPin === pin) return;
    this.drawnPin = pin;
    this.pinChip.replaceChildren(
      picture(pin, 96),
      el("span", { text: `Similar to ${item?.name ?? `photo ${pin}`}` }),
      iconButton("End the sort by similarity", "close", () => this.app.commands.pin()),
    );
  }
}

// Not while someone types in it.
function setValue(input, value) {
  if (document.activeElement !== input) input.value = value;
}

function option([value, text]) {
  return el("option", { value, text });
}

function select(label, options, onChange) {
  return el("select", { "aria-label": label, onchange: (event) => onChange(event.target.value) }, ...options.map(option));
}
