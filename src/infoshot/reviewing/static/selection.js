// Which items of a list are chosen, and which one has the focus.

export class Selection {
  constructor() {
    this.ids = new Int32Array(0);
    this.focus = 0; // index
    this.anchor = 0; // index where a range begins
    this.chosen = new Set(); // ids, where several are chosen
  }

  get focusId() {
    return this.ids.length ? this.ids[this.focus] : null;
  }

  get isEmpty() {
    return this.ids.length === 0;
  }

  // What an action is about: all chosen items, or the one with the focus.
  get targets() {
    if (this.chosen.size) return Array.from(this.ids.filter((id) => this.chosen.has(id)));
    return this.isEmpty ? [] : [this.focusId];
  }

  // A new list; the focus stays on its item if that is still there.
  setIds(ids, { keepFocus = true } = {}) {
    const focused = this.focusId;
    this.ids = ids;
    const place = keepFocus && focused !== null ? ids.indexOf(focused) : 0;
    this.focus = Math.max(0, place >= 0 ? place : Math.min(this.focus, ids.length - 1));
    this.anchor = this.focus;
    const present = this.chosen.size ? new Set(ids) : null;
    for (const id of this.chosen) if (!present.has(id)) this.chosen.delete(id);
  }

  moveTo(index) {
    this.focus = Math.max(0, Math.min(this.ids.length - 1, index));
    this.anchor = this.focus;
    this.chosen.clear();
  }

  // From where the range began to this item.
  extendTo(index) {
    this.focus = Math.max(0, Math.min(this.ids.length - 1, index));
    const [from, to] = [Math.min(this.anchor, this.focus), Math.max(this.anchor, this.focus)];
    this.chosen = new Set(this.ids.subarray(from, to + 1));
  }

  toggle(index) {
    if (this.chosen.size === 0 && this.focus !== index) this.chosen.add(this.focusId);
    const id = this.ids[index];
    if (!this.chosen.delete(id)) this.chosen.add(id);
    this.focus = index;
    this.anchor = index;
  }

  selectAll() {
    this.chosen = new Set(this.ids);
  }

  select(ids) {
    this.chosen = new Set(ids);
  }

  clear() {
    this.chosen.clear();
  }

  isChosen(index) {
    return this.chosen.size ? this.chosen.has(this.ids[index]) : index === this.focus;
  }
}
