// The page's own sentences, in the languages that have a file in locales/.
import de from "./locales/de.json";
import en from "./locales/en.json";

export type Name = keyof typeof en;
const LOCALES: Record<string, Record<Name, string>> = {en, de};
export const LANGUAGES = Object.entries(LOCALES).map(([tag, locale]) => ({tag, name: locale.name}));

const base = (tag: string): string => tag.toLowerCase().split("-")[0]!;

/** Returns the language of the page for a person who reads these, in this order. */
export function pageLanguage(wanted: readonly string[]): string {
  return wanted.map(base).find((tag) => Object.hasOwn(LOCALES, tag)) ?? "en";
}

/** Returns the wording that fits a person best who reads these languages, in this order; the first if none does. */
export function bestWording<One extends {language: string}>(wordings: One[], wanted: readonly string[]): One | undefined {
  for (const tag of wanted) {
    const exact = wordings.find((one) => one.language.toLowerCase() === tag.toLowerCase());
    const near = exact ?? wordings.find((one) => base(one.language) === base(tag));
    if (near) return near;
  }
  return wordings[0];
}

/** Returns the decimal number that a person has written, with a comma or a point before the decimals; NaN for anything else,
 * such as "1,000", which is one or a thousand, depending on who has written it. */
export function decimalOf(written: string): number {
  const plain = written.trim().replace("\u2212", "-").replace(",", ".");
  const mayBeThousands = /^[+-]?[1-9]\d{0,2}\.\d{3}$/.test(plain);
  return /^[+-]?(\d+\.?\d*|\.\d+)$/.test(plain) && !mayBeThousands ? Number(plain) : NaN;
}

/** The sentences of one language, and its ways to write numbers. */
export class Texts {
  constructor(readonly language: string) {}

  has(name: string): name is Name {
    return Object.hasOwn(en, name);
  }

  say(name: Name, values: Record<string, string | number> = {}): string {
    const text = LOCALES[this.language]?.[name] ?? en[name];
    return text.replace(/\{(\w+)\}/g, (_, key: string) => String(values[key] ?? ""));
  }

  number(value: number, digits = 6): string {
    return new Intl.NumberFormat(this.language, {maximumSignificantDigits: digits}).format(value);
  }

  /** Returns a number with all its digits, and no groups of thousands. */
  plain(value: number): string {
    return new Intl.NumberFormat(this.language, {maximumSignificantDigits: 15, useGrouping: false}).format(value);
  }

  /** Rounded up to a tenth of a per cent: what a guarantee shows. */
  atMost(share: number): string {
    return this.percent(Math.min(1, Math.ceil(share * 1000 - 1e-9) / 1000));
  }

  percent(share: number): string {
    const digits = share > 0 && share < 0.1 ? 2 : 1;
    return new Intl.NumberFormat(this.language, {style: "percent", maximumFractionDigits: digits}).format(share);
  }

  /** Rounded up: an epsilon that is shown is never below the certified one. */
  epsilon(value: number): string {
    const scale = 10 ** (3 - Math.max(0, Math.ceil(Math.log10(value))));
    return this.number(Math.ceil(value * scale * (1 - 1e-15)) / scale);
  }

  /** Returns a very small number, such as a delta. */
  tiny(value: number): string {
    return value < 1e-3 ? String(value) : this.number(value);
  }

  when(ms: number): string {
    return new Intl.DateTimeFormat(this.language, {dateStyle: "long", timeStyle: "short"}).format(ms);
  }

  list(names: string[]): string {
    return new Intl.ListFormat(this.language).format(names);
  }
}
