// Renders the formulas of a page: pymdownx.arithmatex writes \(...\) and \[...\] into elements of this class.
document.querySelectorAll(".arithmatex").forEach((element) => {
  const source = element.textContent.trim();
  katex.render(source.slice(2, -2), element, { displayMode: source.startsWith("\\["), throwOnError: false });
  // Punctuation after a formula stays on its line.
  const next = element.nextSibling;
  const marks = next?.nodeType === Node.TEXT_NODE ? next.data.match(/^[.,;:)]*/)[0] : "";
  if (marks) {
    const line = document.createElement("span");
    line.style.whiteSpace = "nowrap";
    element.replaceWith(line);
    next.data = next.data.slice(marks.length);
    line.append(element, marks);
  }
});
