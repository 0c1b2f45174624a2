// Elements of the page. Texts become text nodes, so nothing that others have written is ever taken for markup.
type Child = Node | string | undefined | false;
type Properties = Record<string, unknown>;

/** Returns an element; properties that begin with "on" are listeners, all others attributes. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child): child is Node | string => child !== undefined && child !== false));
  return element;
}

/** Returns what a person reads in another language than the page's, with its language and direction. */
export function foreign<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  language: string | undefined,
  text: string,
  properties: Properties = {},
): HTMLElementTagNameMap[Tag] {
  return h(tag, {lang: language, dir: "auto", ...properties}, text);
}

export const list = (points: string[]): HTMLElement => h("ul", {}, ...points.map((point) => h("li", {}, point)));

/** Returns a fingerprint in groups that people can compare. */
export function fingerprint(digits: string): HTMLElement {
  const groups = digits.match(/.{8}/g) ?? [];
  return h("code", {class: "fingerprint"}, ...groups.flatMap((group) => [h("span", {}, group), " "]));
}

/** Returns a radio button that looks like a card. */
export function choice(name: string, value: string, properties: Properties, ...children: Child[]): HTMLLabelElement {
  const input = h("input", {type: "radio", name, value, required: true, ...properties});
  return h("label", {class: "choice"}, input, h("span", {class: "choice-text"}, ...children));
}

/** Returns a bar that is filled up to this share, or between two; it is for the eye, the number beside it for everybody. */
export function bar(share: number, from = 0): HTMLElement {
  const filled = h("span", {class: "filled"});
  filled.style.width = `${100 * (share - from)}%`;
  filled.style.marginInlineStart = `${100 * from}%`;
  return h("span", {class: "bar", "aria-hidden": "true"}, filled);
}
