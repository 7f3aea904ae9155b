// What differs between two documents, field by field. Items of a list that have a name are compared
// by it: an endpoint that was put in front of another one is not a change of both.

export interface Difference {
  /** Such as `origins.one.weight`. */
  path: string
  /** Empty: it was not there. */
  before: string
  /** Empty: it is there no more. */
  after: string
}

type Fields = Record<string, unknown>

const isObject = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value)
const text = (value: unknown) => (value === undefined ? '' : typeof value === 'string' && value !== '' ? value : JSON.stringify(value))

/** The items of a list by name, if each has one of its own. */
function named(value: unknown): Fields | undefined {
  if (!Array.isArray(value)) return undefined
  const names = value.map((item) => (isObject(item) ? (item.name ?? item.monitor_id) : undefined))
  if (names.some((name) => typeof name !== 'string') || new Set(names).size < names.length) return undefined
  return Object.fromEntries(value.map((item, at) => [names[at], item]))
}

const parts = (value: unknown): Fields | undefined => (isObject(value) ? value : named(value))

/** In the order of the documents. What changes with every write is left out. */
export function differences(before: unknown, after: unknown, path = ''): Difference[] {
  const [was, is] = [parts(before), parts(after)]
  // What only one side has is shown whole, below the first level.
  const both = was !== undefined && is !== undefined
  if (both || (path === '' && (was ?? is) !== undefined)) {
    const keys = new Set([...Object.keys(was ?? {}), ...Object.keys(is ?? {})])
    const below = [...keys]
      .filter((key) => path !== '' || key !== 'modified_on')
      .flatMap((key) => differences(was?.[key], is?.[key], path === '' ? key : `${path}.${key}`))
    // The same items in another order.
    if (both && below.length === 0 && Array.isArray(before) && Array.isArray(after)) {
      const [from, to] = [Object.keys(was).join(', '), Object.keys(is).join(', ')]
      if (from !== to) return [{ path: `${path} (order)`, before: from, after: to }]
    }
    return below
  }
  const [from, to] = [text(before), text(after)]
  return from === to ? [] : [{ path, before: from, after: to }]
}
