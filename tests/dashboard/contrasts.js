// Texts that are shown with less contrast than WCAG 2.2 AA asks for (1.4.3): 4.5 to 1.
() => {
  const channels = (color) => color.match(/[\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const background = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((channels(color)[3] ?? 1) > 0) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const hasText = (node) => [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    if (!hasText(node) || !node.checkVisibility() || node.closest(":disabled, .unseen, option, script")) continue;
    const [one, other] = [luminance(getComputedStyle(node).color), luminance(background(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) poor.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)}: ${node.textContent.trim().slice(0, 40)}`);
  }
  return poor;
}
