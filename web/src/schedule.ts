// The waves in which a survey is asked again and again, with one consent: croupier/protocol/schedules.py.
import {byteLength} from "./bytes.js";
import {Period, Results, type Schedule} from "./gen/croupier/protocol/v1/messages_pb.js";
import {check} from "./refusals.js";
import {checkShown} from "./shown.js";

export const MOST_WAVES = 4096;
const DAY_S = 86_400;
const BETWEEN_S = 2 * 3600;
const DAYS: Partial<Record<Period, number>> = {[Period.ONCE]: 0, [Period.DAY]: 1, [Period.WEEK]: 7};

export function checkSchedule(schedule: Schedule): void {
  const {version, previousHash, change, calendar, firstWave, lastWave, totalEpsilon, totalDelta, results} = schedule;
  check(version >= 1 && version < 2 ** 31, "the version of the study is out of range");
  check(previousHash.length === (version > 1 ? 32 : 0), "the study does not name the version before, or names one before the first");
  check(byteLength(change) <= 1000 && (change !== "") === version > 1, "the study does not say what has changed");
  checkShown("change", change);
  check(firstWave >= 1 && firstWave <= lastWave && lastWave <= MOST_WAVES, "the waves of the study are out of range");
  check(version > 1 || firstWave === 1, "the study does not begin with wave 1");
  check(calendar !== undefined, "the study has no calendar");
  const {first, every, timezone, openForS} = calendar;
  const days = DAYS[every];
  check(days !== undefined && (days > 0 || firstWave === lastWave), "how often the study asks is not said, or not as often as it has waves");
  const isDate = /^\d{4}-\d\d-\d\dT\d\d:\d\d$/.test(first) && new Date(`${first}Z`).toJSON()?.startsWith(first);
  check(Boolean(isDate) && !first.startsWith("0000"), "the first time of the calendar is not a local time");
  check(/^[A-Za-z0-9_+/-]{1,64}$/.test(timezone), "the time zone of the calendar is not a name");
  check(openForS >= 60 && openForS <= (days ? days * DAY_S - BETWEEN_S : 366 * DAY_S), "a wave is open for too short or too long");
  check(Number.isFinite(totalEpsilon) && totalEpsilon > 0, "the total epsilon of the study is out of range");
  check(totalDelta > 0 && totalDelta <= 0.1, "the total delta of the study is out of range");
  check([Results.PUBLIC, Results.PARTICIPANTS, Results.OPERATOR].includes(results), "who reads the results is not said");
}

/** Returns when the wave after the one that opens at a time opens, in milliseconds; undefined after the last one. Where the
 * clocks are changed in between it is an hour off. */
export function nextWave({calendar, lastWave}: Schedule, wave: number, opensUnixS: bigint): number | undefined {
  const days = calendar && DAYS[calendar.every];
  return wave < lastWave && days ? 1000 * (Number(opensUnixS) + days * DAY_S) : undefined;
}

/** Returns how many waves a version has: an earlier one had other budgets, which nothing here knows. */
export const wavesOfVersion = ({firstWave, lastWave}: Schedule): number => lastWave - firstWave + 1;
