// The end: what is written, and what can be said about it.

import { openDialog } from "./dialog.js";
import { button, el } from "./dom.js";
import { count, percent, photos } from "./format.js";
import { getEnough, postFinish } from "./server.js";

const EXPORTS = {
  imagefolder: "Image folder: one folder per class",
  "label-studio": "Label Studio: tasks with these labels",
  fiftyone: "FiftyOne: a data set with these labels",
};

export async function openFinish(app) {
  const { store, outbox, messages } = app;
  let enough;
  try {
    enough = await getEnough();
  } catch (error) {
    messages.warn(error.message);
    return;
  }
  const boxes = store.state.all_exports.map((name) => exportBox(name, store.state.exports.includes(name)));
  const status = el("p", { role: "status", tabindex: "-1" });
  const body = el("div", { class: "finish" }, ...accuracy(enough), ...written(store.state, boxes), status);
  const finish = async (close) => {
    if (outbox.nUnsaved) {
      status.textContent = "Some answers are not saved yet. Wait for the server, then finish.";
      return;
    }
    const exports = boxes.filter((box) => box.input.checked).map((box) => box.input.value);
    const start = dialog.querySelector("button.primary");
    status.textContent = "Writing the files…";
    status.focus(); // a button that is disabled loses it
    start.disabled = true;
    try {
      await write(app, exports);
      showResult(app, dialog, close);
    } catch (error) {
      status.textContent = error.message;
      start.disabled = false;
      start.focus();
    }
  };
  const { dialog } = openDialog({
    title: "Finish",
    content: body,
    actions: [{ label: "Go on reviewing" }, { label: "Write the files", primary: true, run: finish }],
  });
}

function exportBox(name, checked) {
  const input = el("input", { type: "checkbox", value: name, checked });
  return { input, root: el("label", { class: "option" }, input, el("span", { text: EXPORTS[name] ?? name })) };
}

function accuracy({ promise, part, sentences, goal, audit, confidence }) {
  const lines = sentences.map((text) => el("p", { text }));
  if (promise?.met) return lines;
  if (part) {
    lines.push(
      el("p", { class: "part", text: `The goal of ${percent(goal, 1)} is promised for a part: ${photos(part.n)} (${percent(part.share)}) at ${percent(part.low, 1)} or more, with ${percent(confidence)} confidence. ${photos(part.n_remaining)} stay for the eye.` }),
    );
  } else if (audit.n === 0) {
    lines.push(el("p", { class: "part", text: "Without an audit nothing can be promised. You can still finish; the statement will say so." }));
  }
  return lines;
}

function written(state, boxes) {
  const list = el(
    "ul",
    { class: "written" },
    el("li", { text: `Labels of all ${photos(state.n_photos)}: labels.csv and labels.parquet` }),
    el("li", { text: "The statement of accuracy: run.json and the report" }),
  );
  return [
    el("h3", { text: `Written into ${state.run}` }),
    list,
    el("fieldset", {}, el("legend", { text: "Also export" }), ...boxes.map((box) => box.root)),
    el("p", { class: "soft", text: `The image folder is ${state.run}/imagefolder. Its files are links to the photos; outliers are in its folder _outlier, unsure photos in _unsure.` }),
    el("p", { class: "soft", text: `${count(state.enough.n_answered)} photos have your answer; the others have the predicted label. You can go on reviewing afterwards and finish again.` }),
  ];
}

// Resolves when the files are on disk; fails if they cannot be written. If the connection is lost
// meanwhile, the event is too, but the state that is loaded after it has the new statement.
async function write(app, exports) {
  const listening = new AbortController();
  const { signal } = listening;
  const statement = () => JSON.stringify(app.store.state.finished);
  const before = statement();
  const ended = new Promise((resolve, reject) => {
    app.live.addEventListener("finished", resolve, { signal });
    app.store.addEventListener("state", () => statement() !== before && resolve(), { signal });
    const fail = ({ state, error }) => state === "failed" && reject(new Error(error));
    app.live.addEventListener("solve", ({ detail }) => fail(detail), { signal });
  });
  try {
    await Promise.all([postFinish({ exports, client: app.client }), ended]);
  } finally {
    listening.abort();
  }
}

function showResult(app, dialog, close) {
  const { finished, run } = app.store.state;
  if (!dialog.open) {
    app.messages.inform(`Finished. ${finished.sentence}`);
    return;
  }
  const { part } = finished;
  dialog.querySelector(".finish").replaceChildren(
    el("p", { class: "finish-sentence", role: "status", text: finished.sentence }),
    ...(part ? [el("p", { text: `${photos(part.n_remaining)} stay for the eye.` })] : []),
    el("p", { class: "soft", text: `The files are in ${run}.` }),
  );
  const done = button("Done", { kind: "primary", onclick: () => close() });
  dialog.querySelector(".dialog-actions").replaceChildren(done);
  done.focus();
}
