// Renders the formulas of a page: pymdownx.arithmatex writes \(...\) and \[...\] into elements of this class.
document.querySelectorAll(".arithmatex").forEach((element) => {
  const source = element.textContent.trim();
  katex.render(source.slice(2, -2), element, { displayMode: source.startsWith("\\["), throwOnError: false });
});
