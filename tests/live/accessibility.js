// What a person who cannot see well, or has no mouse, would stumble over: a list of sentences.
() => {
  const problems = [];
  const shown = (node) => node.checkVisibility({ opacityProperty: false, visibilityProperty: true });
  const name = (node) => {
    const by = (node.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join(" ");
    const label = node.labels ? [...node.labels].map((each) => each.textContent).join(" ") : "";
    return (node.getAttribute("aria-label") || by || label || node.textContent || node.alt || node.title || "").trim();
  };
  const words = (node) => `${node.tagName.toLowerCase()}.${node.className.baseVal ?? node.className} "${(node.textContent || "").trim().slice(0, 40)}"`;

  for (const node of document.querySelectorAll("a, button, input, select, textarea, summary, [role=img], [role=region], progress, video, img")) {
    if (shown(node) && !name(node)) problems.push(`no name: ${words(node)}`);
  }
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of new Set(ids)) if (ids.filter((each) => each === id).length > 1) problems.push(`id twice: ${id}`);
  for (const node of document.querySelectorAll("[tabindex]")) if (node.tabIndex > 0) problems.push(`order of Tab is changed: ${words(node)}`);
  if (document.querySelectorAll("h1").length !== 1) problems.push(`${document.querySelectorAll("h1").length} headings of the first rank`);
  let rank = 0;
  for (const node of document.querySelectorAll("h1, h2, h3, h4")) {
    if (!shown(node)) continue;
    const now = Number(node.tagName[1]);
    if (now > rank + 1) problems.push(`a rank of headings is left out before ${words(node)}`);
    rank = now;
  }
  for (const table of document.querySelectorAll("table")) if (!table.caption) problems.push(`a table without caption: ${words(table)}`);
  if (!document.documentElement.lang) problems.push("the language of the page is not said");

  // Contrast as WCAG 2.2 measures it: 4.5, or 3 for large text.
  const parse = (text) => {
    const parts = text.match(/[\d.]+/g).map(Number);
    return { rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : 1 };
  };
  const over = (top, below) => top.rgb.map((value, index) => value * top.alpha + below[index] * (1 - top.alpha));
  const ground = (node) => {
    const layers = [];
    for (let each = node; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      layers.push(colour);
      if (colour.alpha === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (seen.has(node) || !walker.currentNode.textContent.trim() || !shown(node)) continue;
    if (node.closest("noscript, script, style, option, .hidden, .skip") || node.disabled) continue;
    seen.add(node);
    const style = getComputedStyle(node);
    if (parseFloat(style.fontSize) === 0) continue;
    const back = ground(node), front = over(parse(style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)}: ${words(node)}`);
  }
  return problems;
}
