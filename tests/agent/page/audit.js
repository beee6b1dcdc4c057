// What a browser knows of the page: colours as computed, places as laid out.
(() => {
  const rgba = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const over = (top, below) => {
    const mix = (key) => top[key] * top.a + below[key] * (1 - top.a);
    return { r: mix("r"), g: mix("g"), b: mix("b"), a: 1 };
  };
  // https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio
  const luminance = ({ r, g, b }) => {
    const linear = (n) => (n /= 255) <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4;
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const ratio = (a, b) => {
    const [dark, light] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  };
  const behind = (element) => {
    if (!element) return rgba(getComputedStyle(document.documentElement).colorScheme.includes("x") ? "rgb(0,0,0)" : "rgb(255,255,255)");
    const style = getComputedStyle(element);
    const own = element instanceof SVGElement ? { r: 0, g: 0, b: 0, a: 0 } : rgba(style.backgroundColor);
    return own.a === 1 ? own : over(own, behind(element.parentElement));
  };

  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode()); ) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("svg")) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const below = behind(element);
    texts.push({
      text: node.data.trim().slice(0, 40),
      size,
      ratio: ratio(over(rgba(style.color), below), below),
      needed: large ? 3 : 4.5,
    });
  }
  // Shapes need 3:1 (https://www.w3.org/TR/WCAG21/#non-text-contrast).
  const shapes = [];
  for (const shape of document.querySelectorAll("rect:not(.track), .outline, .mark")) {
    const style = getComputedStyle(shape);
    const outlined = style.fill === "none" || shape.classList.contains("guess");
    const paint = rgba(outlined ? style.stroke : style.fill);
    const filled = document.querySelector(".outline");
    const onSymbol = shape.classList.contains("mark") && getComputedStyle(filled).fill !== "none";
    const below = onSymbol ? rgba(getComputedStyle(filled).fill) : behind(shape);
    shapes.push({ text: shape.outerHTML.slice(0, 60), ratio: ratio(paint, below), needed: 3 });
  }
  const root = document.documentElement;
  // A phone shows a page that is too wide smaller, and then says that it is as wide as that.
  const width = Math.min(innerWidth, screen.width);
  const wide = [...document.body.querySelectorAll("*")].filter(
    (e) => !e.closest("svg") && e.getBoundingClientRect().right > width + 0.5,
  );
  const rects = [...document.querySelectorAll("rect:not(.track)")];
  return {
    title: document.title,
    word: document.querySelector("h1").innerText,
    why: document.querySelector(".why").innerText,
    text: document.body.innerText,
    background: getComputedStyle(document.body).backgroundColor,
    tone: getComputedStyle(document.querySelector("h1")).color,
    symbol: document.querySelector(".outline").getAttribute("d"),
    overflow: root.scrollWidth - width,
    wide: wide.map((e) => e.outerHTML.slice(0, 80)),
    bad: [...texts, ...shapes].filter((item) => item.ratio < item.needed),
    least: Math.min(...texts.map((item) => item.ratio)),
    smallest: Math.min(...texts.map((item) => item.size)),
    tallest: Math.max(0, ...[...document.querySelectorAll(".flips time")].map((time) => time.getClientRects().length)),
    scripts: document.scripts.length,
    lanes: rects.map((r) => r.getAttribute("class") + "@" + Math.floor(r.getAttribute("y") / 10)),
    slimmest: Math.min(...rects.map((r) => r.getBoundingClientRect().width)),
    flips: [...document.querySelectorAll(".flips tbody tr")].map((row) => row.innerText.replace(/\s+/g, " ")),
    times: [...document.querySelectorAll("time")].map((time) => time.dateTime),
    outline: {
      lang: root.lang,
      h1: document.querySelectorAll("h1").length,
      main: document.querySelectorAll("main").length,
      footer: document.querySelectorAll("body > footer").length,
      unscoped: document.querySelectorAll("th:not([scope])").length,
      unnamed: document.querySelectorAll("svg:not([aria-hidden]):not([aria-label])").length,
    },
  };
})()
