// Someone else answered differently in the meantime: both answers, and a choice.

import { openDialog } from "./dialog.js";
import { el, picture, swatch } from "./dom.js";
import { labelText, photos } from "./format.js";

let isOpen = false;

export async function openConflicts(app) {
  if (isOpen) return;
  isOpen = true;
  while (app.outbox.conflicts.length) await settle(app, app.outbox.conflicts[0]);
  isOpen = false;
}

async function settle(app, conflict) {
  const rows = [...conflict.contested].map(([id, answer]) => row(app, conflict.job, id, answer));
  const n = rows.length;
  const { closed } = openDialog({
    title: "Someone else answered differently",
    kind: "broad",
    content: [
      el("p", { text: `${photos(n)} got another answer in another window after you saw ${n === 1 ? "it" : "them"}. Which one is right?` }),
      el("div", { class: "conflict-list" }, ...rows.map((each) => each.root)),
    ],
    actions: [
      { label: n === 1 ? "Keep theirs" : "Keep all of theirs", value: "theirs" },
      { label: n === 1 ? "Use mine" : "Use all of mine", value: "mine" },
      { label: "Save my choices", value: "chosen", primary: true },
    ],
  });
  const decision = await closed;
  const mine = rows.filter((each) => decision === "mine" || (decision === "chosen" && each.isMine()));
  app.outbox.settle(conflict, mine.map((each) => each.id));
}

function row(app, job, id, theirs) {
  const { store } = app;
  const { none } = store.state;
  const item = store.items.get(id);
  const shown = { label: job.label, audit: job.label, accept: item?.predicted ?? "the prediction", reject: none };
  const mine = job.action in shown ? labelText(shown[job.action], none) : app.commands.describeAnswer(job);
  const choice = (value, text, colour, checked) => {
    const input = el("input", { type: "radio", name: `conflict-${id}`, value, checked });
    return { input, root: el("label", { class: "option" }, input, swatch(colour), el("span", { text })) };
  };
  const first = choice("theirs", `Theirs: ${labelText(theirs ?? "", none)}`, store.colourOf(theirs), true);
  const second = choice("mine", `Mine: ${mine}`, store.colourOf(shown[job.action]), false);
  return {
    id,
    isMine: () => second.input.checked,
    root: el("fieldset", { class: "conflict" }, picture(id, 160), el("div", {}, el("p", { class: "soft", text: item?.name ?? `Photo ${id}` }), first.root, second.root)),
  };
}
