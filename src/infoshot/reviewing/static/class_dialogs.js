// Classes: add, rename, merge.

import { openDialog } from "./dialog.js";
import { button, el } from "./dom.js";
import { photos } from "./format.js";
import { postClasses } from "./server.js";

export function openClassDialog(app, action, name) {
  if (action === "add") return openAdd(app);
  return openEdit(app, name);
}

function nameField(label, value = "") {
  const input = el("input", { type: "text", value, maxlength: 200, autocomplete: "off", required: true });
  return { input, field: el("label", { class: "dialog-field" }, el("span", { text: label }), input) };
}

// Sends a change; errors are shown in the dialog, which stays open.
async function change(app, body, error, close) {
  try {
    await postClasses({ ...body, client: app.client });
    if (body.action === "rename") {
      app.keys.rename(body.name, body.to);
      app.store.renameColour(body.name, body.to);
    }
    await app.store.loadState();
    app.store.expire();
    close(true);
    return true;
  } catch (problem) {
    error.textContent = problem.message;
    return false;
  }
}

function openAdd(app) {
  const { input, field } = nameField("Name of the new class");
  const error = el("p", { class: "dialog-error", role: "alert" });
  const ids = app.grid.selection.isEmpty ? [] : app.commands.targets;
  const first = el("input", { type: "checkbox" });
  const option = el("label", { class: "option", hidden: ids.length === 0 }, first, el("span", {
    text: ids.length === 1 ? "Give it to the photo with the focus" : `Give it to the ${photos(ids.length)} selected`,
  }));
  openDialog({
    title: "Add a class",
    content: [
      field,
      el("p", { class: "soft", text: "A new class needs one example: it takes part from the first photo that you give it." }),
      option,
      error,
    ],
    actions: [{ label: "Cancel" }, {
      label: "Add", primary: true,
      run: async (close) => {
        const name = input.value.trim();
        if (await change(app, { action: "add", name, to: "" }, error, close)) {
          if (first.checked) await app.commands.label(name);
          else app.messages.inform(`The class ${name} is there. Give it to at least one photo.`);
        }
      },
    }],
  });
  input.focus();
}

function openEdit(app, name) {
  const { input, field } = nameField("New name", name);
  const error = el("p", { class: "dialog-error", role: "alert" });
  const others = app.store.classNames.filter((each) => each !== name);
  const target = el("select", {}, ...others.map((each) => el("option", { value: each, text: each })));
  const n = app.store.state.classes.find((each) => each.name === name)?.n ?? 0;
  const { close } = openDialog({
    title: `Class ${name}`,
    content: [
      el("h3", { text: "Rename" }),
      field,
      el("p", { class: "soft", text: "All its photos and examples get the new name." }),
      button("Rename", {
        onclick: async () => {
          const to = input.value.trim();
          if (await change(app, { action: "rename", name, to }, error, close)) follow(app, name, to);
        },
      }),
      el("h3", { text: "Merge" }),
      el("label", { class: "dialog-field" }, el("span", { text: "Merge into" }), target),
      el("p", { class: "soft", text: `${photos(n)} with the label ${name} and its examples then belong to the other class, and ${name} is gone. Undo brings it back.` }),
      button(`Merge ${name} into it`, {
        disabled: others.length === 0,
        onclick: async () => {
          const to = target.value;
          if (await change(app, { action: "merge", name, to }, error, close)) follow(app, name, to);
        },
      }),
      error,
    ],
  });
  input.select();
}

// The view of a class that is gone shows the class that took its place.
function follow(app, name, to) {
  const { view } = app;
  if (view.query.class === name) view.change({ class: to });
  else view.load();
}
