() => {
  // What is wrong with the elements that are shown: controls without a name, and text that is hard to read.
  const shown = (element) => element.checkVisibility() && element.getClientRects().length > 0;
  const label = (element) => {
    const by = element.getAttribute("aria-labelledby");
    return (
      element.getAttribute("aria-label") || (by && document.getElementById(by)?.textContent) ||
      [...(element.labels ?? [])].map((each) => each.textContent).join() || element.textContent
    ).trim();
  };
  const controls = [...document.querySelectorAll(
    "a[href], button, input, select, summary, [role=img], [role=log], progress, nav, [tabindex]:not(main)")].filter(shown);
  const nameless = controls.filter((each) => !label(each)).map((each) => each.outerHTML.slice(0, 120));

  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const over = (top, below) => top.rgb.map((value, at) => value * top.a + below[at] * (1 - top.a));
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.push(parse(getComputedStyle(each).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (element) => {
    const style = getComputedStyle(element);
    const below = ground(element);
    const ink = parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    let opacity = 1;
    for (let each = element; each; each = each.parentElement) opacity *= Number(getComputedStyle(each).opacity);
    const [one, other] = [light(over({ rgb: ink.rgb, a: ink.a * opacity }, below)), light(below)];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  };
  const texts = [...document.querySelectorAll("body *")].filter((each) => shown(each) && !each.closest("noscript, .tile, .unseen, .skip")
    && [...each.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim()));
  const faint = texts.map((each) => [contrast(each).toFixed(2), each.className, each.textContent.slice(0, 40)]).filter(([value]) => value < 4.5);
  const headings = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(shown).map((each) => each.tagName[1]);
  return { nameless, controls: controls.length, faint, count: texts.length, headings };
}
