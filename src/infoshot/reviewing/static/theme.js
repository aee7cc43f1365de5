// Dark or light: as the system says, until a person chooses.

const NAME = "infoshot-theme";
const DARK = matchMedia("(prefers-color-scheme: dark)");

export function currentTheme() {
  return localStorage.getItem(NAME) ?? (DARK.matches ? "dark" : "light");
}

export function applyTheme() {
  document.documentElement.dataset.theme = currentTheme();
}

export function toggleTheme() {
  const next = currentTheme() === "dark" ? "light" : "dark";
  const system = DARK.matches ? "dark" : "light";
  if (next === system) localStorage.removeItem(NAME);
  else localStorage.setItem(NAME, next);
  applyTheme();
  return next;
}

export function followSystemTheme(onChange) {
  DARK.addEventListener("change", () => {
    applyTheme();
    onChange();
  });
}
