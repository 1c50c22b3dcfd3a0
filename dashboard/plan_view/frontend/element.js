// Elements. Text goes in as text, never as markup.

export function element(tag, className, parent, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== "") made.textContent = text;
  parent?.append(made);
  return made;
}
