// What the centre shows, and the drawers of narrow windows.

import { el, iconButton } from "./dom.js";

const EMPTY = {
  suggested: "Every photo has an answer.",
  doubtful: "Every photo has an answer.",
  class: "No photo has this label.",
  changed: "The last solve changed no label.",
  outliers: "No photo is unlike every class.",
  unreadable: "Every file could be opened.",
  examples: "This run has no examples of its own.",
  corrected: "No photo has an answer yet.",
  map: "Draw a line around points of the map to see their photos here.",
};

const MAP_SIZE = 130; // there is less space beside the map

const find = (id) => document.getElementById(id);

export class Panes {
  constructor(app) {
    this.app = app;
    this.empty = el("p", { class: "empty-note", hidden: true });
    find("grid").append(this.empty);
    for (const [button, drawer] of [["open-side", "side"], ["open-enough", "enough"]]) {
      find(button).addEventListener("click", () => this.#toggleDrawer(drawer, find(button)));
      find(drawer).prepend(
        iconButton("Close this panel", "close", () => this.closeDrawers(), { class: "icon-button drawer-close" }),
      );
    }
    find("backdrop").addEventListener("click", () => this.closeDrawers());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.closeDrawers());
  }

  // Opens the pane of a view; map and groups are loaded when they are used first.
  async show(view) {
    document.body.dataset.view = view;
    find("map-pane").hidden = view !== "map";
    find("groups-pane").hidden = view !== "groups";
    find("grid").hidden = view === "groups";
    find("actions").hidden = view === "groups";
    this.app.grid.hasPictures = view !== "unreadable";
    const size = this.app.toolbar.chosenSize;
    this.app.grid.setSize(view === "map" ? Math.min(size, MAP_SIZE) : size);
    if (view !== "groups") this.groups?.close();
    if (view === "map") {
      const { MapView } = await import("./map_view.js");
      this.map ??= new MapView(this.app, find("map-pane"));
      await this.map.open();
    } else if (view === "groups") {
      const { Groups } = await import("./groups.js");
      this.groups ??= new Groups(this.app, find("groups-pane"));
      await this.groups.open();
    }
  }

  drawEmpty() {
    const { view, grid } = this.app;
    this.empty.hidden = !grid.selection.isEmpty;
    this.empty.textContent = view.isFiltered ? "No photo fits these filters." : (EMPTY[view.name] ?? "No photos.");
  }

  #toggleDrawer(name, button) {
    const isOpen = document.body.dataset.drawer === name;
    this.closeDrawers();
    if (isOpen) return;
    this.opener = button;
    document.body.dataset.drawer = name;
    button.setAttribute("aria-expanded", "true");
    find("backdrop").hidden = false;
    find(name).querySelector("button, input")?.focus();
  }

  closeDrawers() {
    if (!document.body.dataset.drawer) return;
    delete document.body.dataset.drawer;
    find("backdrop").hidden = true;
    this.opener.setAttribute("aria-expanded", "false");
    this.opener.focus();
  }
}
