// Elements are made here, from text only: names and labels are never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  check: "M4 12.5l5 5L20 6.5",
  none: "M6 6l12 12M18 6L6 18",
  skip: "M5 5l8 7-8 7zM18 5v14",
  undo: "M8 5L4 9l4 4M4 9h10a5 5 0 0 1 0 10H9",
  clear: "M4 7h16M9 7V4h6v3M7 7l1 13h8l1-13",
  clock: "M12 3a9 9 0 1 0 .01 0zM12 7v5l3.5 2",
  menu: "M4 7h16M4 12h16M4 17h16",
  target: "M12 3a9 9 0 1 0 .01 0zM12 8a4 4 0 1 0 .01 0z",
  theme: "M12 3a9 9 0 1 0 .01 0zM12 3v18a9 9 0 0 0 0-18",
  keyboard: "M3 7h18v10H3zM7 10h.01M11 10h.01M15 10h.01M17 10h.01M8 14h8",
  close: "M6 6l12 12M18 6L6 18",
  search: "M11 4a7 7 0 1 0 .01 0zM16 16l5 5",
  filter: "M4 6h16M7 12h10M10 18h4",
  plus: "M12 5v14M5 12h14",
  pencil: "M4 20l1-4L16 5l3 3L8 19z",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  up: "M12 19V5M6 11l6-6 6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  refresh: "M20 12a8 8 0 1 1-2.5-5.8M20 3v5h-5",
  changed: "M12 5l8 14H4z",
  unsure: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 18h.01",
  outlier: "M12 4v10M12 19h.01",
  audited: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6zM9 12l2.2 2.2L15.5 10",
  conflict: "M4 9h13l-3-3M20 15H7l3 3",
  saving: "M12 4a8 8 0 1 1-8 8",
  unsaved: "M12 15V4M7 9l5-5 5 5M4 19h16",
  select: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 17l2.5 2.5L21 15",
};

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

export function button(label, { iconName, key, onclick, kind = "", ...attributes } = {}) {
  return el(
    "button",
    { type: "button", class: `button ${kind}`, onclick, ...attributes },
    iconName ? icon(iconName) : null,
    el("span", { class: "button-text", text: label }),
    key ? el("kbd", { text: key }) : null,
  );
}

export function iconButton(label, iconName, onclick, attributes = {}) {
  return el(
    "button",
    { type: "button", class: "icon-button", title: label, "aria-label": label, onclick, ...attributes },
    icon(iconName),
  );
}

export function swatch(colour) {
  const mark = el("span", { class: "swatch", "aria-hidden": "true" });
  mark.style.background = colour;
  return mark;
}

// Replaces what is in an element; nothing moves if it is the same text.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function picture(id, size, attributes = {}) {
  const image = el("img", { alt: "", decoding: "async", draggable: "false", ...attributes });
  image.addEventListener("load", () => {
    image.classList.add("loaded");
    image.classList.toggle("tiny", Math.max(image.naturalWidth, image.naturalHeight) <= 64);
  });
  image.addEventListener("error", () => image.classList.add("broken"));
  if (id !== null) image.src = imageUrl(id, size);
  return image;
}

export function imageUrl(id, size) {
  return `/image/${id}?size=${size}`;
}

// The smallest size that the server makes and that fills a box of so many CSS pixels.
export function imageSize(pixels) {
  const wanted = pixels * Math.min(window.devicePixelRatio || 1, 2);
  return [96, 160, 320, 640, 1600].find((size) => size >= wanted * 0.9) ?? 1600;
}
