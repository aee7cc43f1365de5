// The map: all photos as points, a lasso, and the photos inside it in the grid.

import { confidencePalette, NO_CLASS } from "./colours.js";
import { el, picture, setText, swatch } from "./dom.js";
import { count, labelText, photos } from "./format.js";
import { createMap } from "./map.js";
import { getMap, getPoints } from "./server.js";

const NAMES = { pca: "Two main directions of the features (PCA). A better map is being computed.", tsne: "Similar photos lie close together (t-SNE)." };
const NO_LABEL = 65535;
const ANSWERED = 1;
const MAX_LEGEND = 30;

export class MapView {
  constructor(app, root) {
    this.app = app;
    this.colourBy = "label";
    this.chosen = new Set();
    this.canvas = el("canvas", { class: "map-canvas", tabindex: "0", "aria-label": "Map of the photos" });
    this.note = el("p", { class: "soft map-note" });
    this.legend = el("ul", { class: "map-legend" });
    this.hover = el("div", { class: "map-hover", "aria-hidden": "true", hidden: true });
    root.append(
      el("div", { class: "map-tools" }, this.#colourChoice(), el("span", { class: "soft", text: "Draw around points to select them; Shift adds. Wheel zooms." })),
      el("div", { class: "map-frame" }, this.canvas, this.hover),
      this.legend,
      this.note,
    );
    this.map = createMap(this.canvas, {
      onSelect: (ids, additive) => this.#select(ids, additive),
      onHover: (id) => this.#showHover(id),
      onOpen: (id) => this.#openPhoto(id),
    });
    new ResizeObserver(() => this.map.resize()).observe(this.canvas);
    app.live.addEventListener("map", () => this.isOpen && this.#loadPlaces());
    app.store.addEventListener("state", () => this.isOpen && this.#loadColoursSoon());
    app.store.addEventListener("theme", () => this.isOpen && this.#draw());
    app.grid.addEventListener("focus-item", () => this.isOpen && this.map.focus(app.grid.focusId));
  }

  get isOpen() {
    return this.app.view.name === "map";
  }

  async open() {
    this.map.resize();
    await Promise.all([this.#loadPlaces(), this.#loadColours()]);
    if (this.chosen.size) this.#show();
  }

  #colourChoice() {
    const option = (value, text) => {
      const input = el("input", { type: "radio", name: "colour-by", value, checked: value === this.colourBy, onchange: () => ((this.colourBy = value), this.#draw()) });
      return el("label", { class: "option" }, input, el("span", { text }));
    };
    return el("div", { class: "colour-by", role: "radiogroup", "aria-label": "Colour by" }, el("span", { class: "soft", text: "Colour by" }), option("label", "label"), option("confidence", "confidence"));
  }

  async #loadPlaces() {
    try {
      const projection = await getMap();
      setText(this.note, projection ? (NAMES[projection.name] ?? "") : "The map is being computed.");
      if (!projection) return;
      this.map.setPoints(projection.xy);
      this.#draw();
      if (this.chosen.size) this.map.select(this.chosen);
    } catch (error) {
      setText(this.note, error.message);
    }
  }

  #loadColoursSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#loadColours(), 500);
  }

  async #loadColours() {
    try {
      this.points = await getPoints();
      this.#draw();
    } catch (error) {
      setText(this.note, error.message);
    }
  }

  #draw() {
    if (!this.points) return;
    const { label, confidence, flags } = this.points;
    const { store } = this.app;
    const { classNames } = store;
    const byLabel = this.colourBy === "label";
    const palette = byLabel
      ? [...classNames.map((name) => store.colourOf(name)), NO_CLASS]
      : confidencePalette();
    const colours = byLabel
      ? label.map((number) => (number === NO_LABEL ? classNames.length : number))
      : Uint16Array.from(confidence, (value) => Math.round((value / 255) * (palette.length - 1)));
    const alpha = Uint8Array.from(flags, (flag) => (flag & ANSWERED ? 255 : 215));
    this.map.setColours(colours, alpha, palette);
    this.#drawLegend(byLabel, palette);
  }

  #drawLegend(byLabel, palette) {
    const { classNames, state } = this.app.store;
    const rows = byLabel
      ? classNames.slice(0, MAX_LEGEND).map((name, number) => [name, palette[number]])
      : [["not confident", palette[0]], ["", palette[5]], ["", palette[10]], ["confident", palette.at(-1)]];
    const drawn = JSON.stringify(rows);
    if (this.drawnLegend === drawn) return;
    this.drawnLegend = drawn;
    this.legend.replaceChildren(...rows.map(([name, colour]) => el("li", {}, swatch(colour), el("span", { text: labelText(name, state.none).replace("no label", "") }))));
    if (byLabel && classNames.length > MAX_LEGEND) this.legend.append(el("li", { text: `and ${count(classNames.length - MAX_LEGEND)} more` }));
  }

  #select(ids, additive) {
    this.chosen = new Set(additive ? [...this.chosen, ...ids] : ids);
    this.map.select(this.chosen);
    this.#show();
    this.app.messages.say(`${photos(this.chosen.size)} selected on the map.`);
  }

  // The photos inside the lasso are all selected, so that one key answers them.
  #show() {
    this.app.view.show(Int32Array.from(this.chosen));
    if (this.chosen.size > 1) this.app.grid.selectAll();
    this.app.grid.focusCell();
  }

  #openPhoto(id) {
    this.#select([id], false);
    this.app.preview.open();
  }

  #showHover(id) {
    this.hover.hidden = id === null || id === undefined || id < 0;
    if (this.hover.hidden || this.hovered === id) return;
    this.hovered = id;
    this.hover.replaceChildren(picture(id, 160), el("span", { text: this.app.store.get(id)?.name ?? "" }));
  }
}
