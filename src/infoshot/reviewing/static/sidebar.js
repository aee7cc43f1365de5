// Left: the views and the classes, with how many photos each has.

import { el, icon, iconButton, setText, swatch } from "./dom.js";
import { count } from "./format.js";

export const VIEWS = [
  ["suggested", "Suggested next", "Photos whose answers help the solver most"],
  ["doubtful", "Doubtful", "Photos between two classes, closest call first"],
  ["class", "By class", "A page of one class, confirmed at once"],
  ["groups", "Groups", "Similar photos, answered together"],
  ["map", "Map", "Every photo as a point"],
  ["changed", "Changed", "Photos that got another label in the last solve"],
  ["outliers", "Outliers", "Photos unlike every class"],
  ["unreadable", "Unreadable", "Files that could not be opened"],
  ["examples", "Examples", "Your examples, those that look mislabelled first"],
  ["corrected", "Answered", "Photos with an answer, the latest first"],
  ["all", "All photos", "Every photo"],
  ["audit", "Audit", "Photos at random, answered without seeing the label"],
];
const MANY_CLASSES = 14;

export class Sidebar {
  constructor(app, root) {
    this.app = app;
    this.views = new Map();
    this.filter = "";
    this.viewList = el("ul", { class: "nav-list" }, ...VIEWS.map((view) => this.#viewRow(...view)));
    this.classList = el("ul", { class: "nav-list class-list" });
    this.search = el("input", {
      type: "search", class: "class-filter", placeholder: "Find a class", "aria-label": "Find a class",
      hidden: true, oninput: () => this.#filter(),
    });
    root.append(
      el("h2", { text: "Views" }),
      this.viewList,
      el(
        "div",
        { class: "nav-head" },
        el("h2", { text: "Classes" }),
        iconButton("Change the keys of the classes", "keyboard", () => app.openKeys()),
        (this.addButton = iconButton("Add a class", "plus", () => app.changeClass("add"))),
      ),
      this.search,
      this.classList,
    );
    app.store.addEventListener("state", () => this.draw());
    app.view.addEventListener("open", () => this.draw());
    app.keys.addEventListener("change", () => this.draw());
  }

  #viewRow(name, label, title) {
    const number = el("span", { class: "nav-count" });
    const row = el(
      "button",
      { type: "button", class: "nav-row", title, onclick: () => this.app.openView(name) },
      el("span", { class: "nav-name", text: label }),
      number,
    );
    this.views.set(name, { row, number });
    return el("li", {}, row);
  }

  draw() {
    const { store, view } = this.app;
    const { classes, can_change_classes: canChange } = store.state;
    const views = { ...store.state.views, audit: store.state.n_audited };
    for (const [name, { row, number }] of this.views) {
      setText(number, name in views ? count(views[name]) : "");
      row.toggleAttribute("aria-current", view.name === name);
      row.classList.toggle("zero", views[name] === 0);
    }
    this.addButton.hidden = !canChange;
    this.search.hidden = classes.length <= MANY_CLASSES;
    this.#drawClasses(classes, canChange);
  }

  // Rows are kept, so that the focus stays where it is.
  #drawClasses(classes, canChange) {
    const { view, keys, store } = this.app;
    const names = classes.map((each) => each.name).join("\n");
    if (this.drawn !== names) {
      this.drawn = names;
      this.rows = classes.map((each) => this.#classRow(each, canChange));
      this.classList.replaceChildren(...this.rows.map((row) => row.root));
      this.#filter();
    }
    classes.forEach((each, number) => {
      const row = this.rows[number];
      setText(row.number, count(each.n));
      setText(row.key, keys.keyOf(each.name).toUpperCase());
      row.key.hidden = !keys.keyOf(each.name);
      row.swatch.style.background = store.colourOf(each.name);
      row.main.title = `${each.name}: ${count(each.n)} photos, ${count(each.n_answered)} answered, ${count(each.n_examples)} examples`;
      row.main.toggleAttribute("aria-current", view.name === "class" && view.query.class === each.name);
    });
  }

  #classRow({ name }, canChange) {
    const row = { number: el("span", { class: "nav-count" }), key: el("kbd"), swatch: swatch("") };
    row.main = el(
      "button",
      { type: "button", class: "nav-row", onclick: () => this.app.openView("class", { class: name }) },
      row.swatch,
      el("span", { class: "nav-name", text: name }),
      row.number,
      row.key,
    );
    const edit = el(
      "button",
      {
        type: "button", class: "icon-button class-edit", title: `Rename or merge ${name}`,
        "aria-label": `Rename or merge ${name}`, onclick: () => this.app.changeClass("edit", name),
      },
      icon("pencil"),
    );
    row.root = el("li", { class: "class-row", "data-name": name.toLowerCase() }, row.main, canChange ? edit : null);
    return row;
  }

  #filter() {
    const text = this.search.value.trim().toLowerCase();
    for (const { root } of this.rows ?? []) root.hidden = !root.dataset.name.includes(text);
  }
}
